#include "aligned.h"

#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>

namespace gnmt {
namespace {

constexpr size_t kCacheLine = 64, kPage = 4096, kHugePage = size_t{2} << 20;
// From here on memory is mapped.
constexpr size_t kLarge = size_t{64} << 10;

size_t RoundUpTo(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void* AllocateAligned(size_t bytes) {
  if (bytes < kLarge) {
    void* data = std::aligned_alloc(kCacheLine, RoundUpTo(bytes, kCacheLine));
    if (data == nullptr) throw std::bad_alloc();
    return data;
  }
  const size_t size = RoundUpTo(bytes, kPage), spare = size < kHugePage ? 0 : kHugePage;
  void* mapped = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  if (spare == 0) return mapped;
  // Only what lies whole on a huge page can be one.
  const uintptr_t first = reinterpret_cast<uintptr_t>(mapped), start = RoundUpTo(first, kHugePage);
  if (start > first) munmap(mapped, start - first);
  const uintptr_t end = first + size + spare;
  if (end > start + size) munmap(reinterpret_cast<void*>(start + size), end - start - size);
#ifdef MADV_HUGEPAGE
  // Refused where the system has none: then pages stay small.
  madvise(reinterpret_cast<void*>(start), size, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<void*>(start);
}

void FreeAligned(void* data, size_t bytes) {
  if (bytes < kLarge) {
    std::free(data);
  } else {
    munmap(data, RoundUpTo(bytes, kPage));
  }
}

}  // namespace gnmt
