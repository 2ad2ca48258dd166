#include "workers.h"

namespace gnmt {
namespace {

// A thread waits for about ten microseconds before it lets others run, and for some hundred turns before it sleeps.
constexpr int kSpins = 400;
constexpr int kYields = 400;

constexpr uint64_t kRound = uint64_t{1} << 32;

uint32_t RoundOf(uint64_t open) { return static_cast<uint32_t>(open >> 32); }

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) threads_.emplace_back([this] { Loop(); });
}

Workers::~Workers() {
  stop_.store(true);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    open_.fetch_add(kRound);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::RunOnAll(int shares, const std::function<void(int)>& share) {
  // Nobody holds a share of the last round any more, so nobody reads these.
  share_ = &share;
  num_unfinished_.store(shares, std::memory_order_relaxed);
  const uint32_t round = RoundOf(open_.load(std::memory_order_relaxed)) + 1;
  open_.store(round * kRound + static_cast<uint32_t>(shares));
  if (num_asleep_.load() > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  TakeShares(round);
  for (int spins = 0; num_unfinished_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Workers::TakeShares(uint32_t round) {
  uint64_t open = open_.load(std::memory_order_acquire);
  while (RoundOf(open) == round && static_cast<uint32_t>(open) > 0) {
    if (!open_.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel)) continue;
    (*share_)(static_cast<int>(static_cast<uint32_t>(open)) - 1);
    num_unfinished_.fetch_sub(1, std::memory_order_release);
    open = open_.load(std::memory_order_acquire);
  }
}

void Workers::Loop() {
  uint32_t seen = 0;
  while (true) {
    for (int waits = 0; RoundOf(open_.load()) == seen; ++waits) {
      if (waits < kSpins) {
        Pause();
      } else if (waits < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::unique_lock<std::mutex> lock(mutex_);
        num_asleep_.fetch_add(1);
        wake_.wait(lock, [&] { return RoundOf(open_.load()) != seen; });
        num_asleep_.fetch_sub(1);
      }
    }
    seen = RoundOf(open_.load());
    if (stop_.load()) return;
    TakeShares(seen);
  }
}

}  // namespace gnmt
