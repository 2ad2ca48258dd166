// Memory on cache lines, which grows and never shrinks by itself: what a decoder needs at its widest step it keeps.

#ifndef GNMT_TF_SERVING_ENGINE_ALIGNED_H_
#define GNMT_TF_SERVING_ENGINE_ALIGNED_H_

#include <cstddef>
#include <new>
#include <utility>

namespace gnmt {

// Bytes on a cache line; throws std::bad_alloc. Large ones are pages of their own, huge ones where the system has them,
// which go back to the system when they are freed: heaps of threads would keep them.
void* AllocateAligned(size_t bytes);
// `bytes` as they were asked for.
void FreeAligned(void* data, size_t bytes);

template <typename T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(size_t size) { Reserve(size); }
  Aligned(Aligned&& other) noexcept { *this = std::move(other); }
  Aligned& operator=(Aligned&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Aligned() { Free(); }

  // Room for `size` values; what was in it is lost when it has to grow.
  T* Reserve(size_t size) {
    if (size > size_) {
      Free();
      if (size > static_cast<size_t>(-1) / 2 / sizeof(T)) throw std::bad_alloc();
      data_ = static_cast<T*>(AllocateAligned(size * sizeof(T)));
      size_ = size;
    }
    return data_;
  }

  // Gives the memory back.
  void Free() {
    if (data_ != nullptr) FreeAligned(data_, size_ * sizeof(T));
    data_ = nullptr;
    size_ = 0;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t place) { return data_[place]; }
  const T& operator[](size_t place) const { return data_[place]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_ALIGNED_H_
