// Memory on cache lines, which grows and never shrinks: what a decoder needs at its widest step it keeps.

#ifndef GNMT_TF_SERVING_ENGINE_ALIGNED_H_
#define GNMT_TF_SERVING_ENGINE_ALIGNED_H_

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace gnmt {

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
  ~Aligned() { std::free(data_); }

  // Room for `size` values; what was in it is lost when it has to grow.
  T* Reserve(size_t size) {
    if (size > size_) {
      std::free(data_);
      data_ = nullptr;
      size_ = 0;
      const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
      data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
      if (data_ == nullptr) throw std::bad_alloc();
      size_ = size;
    }
    return data_;
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
