// Threads that share the work of one sentence batch, step by step.

#ifndef GNMT_TF_SERVING_ENGINE_WORKERS_H_
#define GNMT_TF_SERVING_ENGINE_WORKERS_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gnmt {

// A fixed number of threads, the caller among them. Between the parts of a step they wait in a loop, since a part takes
// microseconds; once the caller has not asked for anything for a while they sleep. Work is taken share by share, and the
// caller takes what nobody else does: on a busy machine it does not wait for threads that the system lets wait.
class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();
  Workers(const Workers&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(begin, end) for shares of [0, count), whose borders are multiples of `grain`, and returns when all are
  // done. Which thread does which, and in what order, is open. Not reentrant; `work` must not throw.
  template <typename Work>
  void Run(int count, int grain, const Work& work) {
    const int64_t pieces = (static_cast<int64_t>(count) + grain - 1) / grain;
    const int shares = static_cast<int>(std::min<int64_t>(num_threads() * kSharesPerThread, pieces));
    if (num_threads() == 1 || shares <= 1) {
      if (count > 0) work(0, count);
      return;
    }
    auto share = [&](int number) {
      const int begin = static_cast<int>(pieces * number / shares * grain);
      work(begin, static_cast<int>(std::min<int64_t>(count, pieces * (number + 1) / shares * grain)));
    };
    RunOnAll(shares, std::ref(share));
  }

 private:
  // Few enough that taking one costs nothing, and enough for a late thread to find some.
  static constexpr int kSharesPerThread = 4;

  void RunOnAll(int shares, const std::function<void(int)>& share);
  void Loop();
  // Takes and does shares of a round until none is left.
  void TakeShares(uint32_t round);

  std::vector<std::thread> threads_;
  const std::function<void(int)>* share_ = nullptr;
  // The round in the upper half, the shares that nobody has taken yet in the lower: who takes one knows whose it is.
  alignas(64) std::atomic<uint64_t> open_{0};
  alignas(64) std::atomic<int> num_unfinished_{0};
  std::atomic<int> num_asleep_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_WORKERS_H_
