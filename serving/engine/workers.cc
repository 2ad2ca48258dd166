#include "workers.h"

namespace gnmt {
namespace {

// A thread waits for about ten microseconds before it lets others run, and for some hundred turns before it sleeps.
constexpr int kSpins = 400;
constexpr int kYields = 400;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) threads_.emplace_back([this, thread] { Loop(thread); });
}

Workers::~Workers() {
  stop_.store(true);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    round_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::RunOnAll(const std::function<void(int)>& share) {
  share_ = &share;
  num_running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1);
  if (num_asleep_.load() > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  share(0);
  for (int spins = 0; num_running_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Workers::Loop(int thread) {
  int seen = 0;
  while (true) {
    int waits = 0;
    while (round_.load() == seen) {
      if (waits < kSpins) {
        Pause();
      } else if (waits < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::unique_lock<std::mutex> lock(mutex_);
        num_asleep_.fetch_add(1);
        wake_.wait(lock, [&] { return round_.load() != seen; });
        num_asleep_.fetch_sub(1);
      }
      ++waits;
    }
    seen = round_.load();
    if (stop_.load()) return;
    (*share_)(thread);
    num_running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace gnmt
