// Threads that share the work of one sentence batch, step by step.

#ifndef GNMT_TF_SERVING_ENGINE_WORKERS_H_
#define GNMT_TF_SERVING_ENGINE_WORKERS_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gnmt {

// A fixed number of threads, the caller among them. Between the parts of a step they wait in a loop, since a part takes
// microseconds; once the caller has not asked for anything for a while they sleep.
class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();
  Workers(const Workers&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(begin, end) for shares of [0, count), whose borders are multiples of `grain`, and returns when all are
  // done. Not reentrant.
  template <typename Work>
  void Run(int count, int grain, const Work& work) {
    const int pieces = (count + grain - 1) / grain, all = std::min(num_threads(), pieces);
    if (all <= 1) {
      if (count > 0) work(0, count);
      return;
    }
    auto share = [&](int thread) {
      if (thread >= all) return;
      const int begin = pieces * thread / all * grain, end = std::min(count, pieces * (thread + 1) / all * grain);
      if (begin < end) work(begin, end);
    };
    RunOnAll(std::ref(share));
  }

 private:
  void RunOnAll(const std::function<void(int)>& share);
  void Loop(int thread);

  std::vector<std::thread> threads_;
  const std::function<void(int)>* share_ = nullptr;
  std::atomic<int> round_{0};
  std::atomic<int> num_running_{0};
  std::atomic<int> num_asleep_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_WORKERS_H_
