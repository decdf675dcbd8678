// Iterators over the elements of a file, for CUB, Thrust, the algorithms of the standard library
// and kernels that are written for any iterator. What they touch is brought into the cache on
// demand and leaves it again, so the file may have any size.
//
//   penstock::file_range<float> numbers;
//   penstock::status s = penstock::file_range<float>::make(*rt, fd, {}, numbers);
//   cub::DeviceReduce::Sum(memory, bytes, numbers.begin(), sum, numbers.size(), stream);
//   thrust::lower_bound(thrust::device, numbers.begin(), numbers.end(), 4.0f);
//   if (penstock::status s = rt->view_status(); !s) ...           // what went wrong since
//
// An iterator is trivially copyable, 64 bytes, and holds no pin: copies cost nothing and need no
// end. It reads only: `*it` is a value. Elements have 1, 2, 4, 8, 16, 32 or 64 bytes, in the byte
// order of the machine, are trivially copyable and have a default value.
//
// Where the iterator may be used: on gpu in kernels of the device that it was made for; there the
// host must not look at `*it`. On cpu in every thread. Thrust takes an iterator that it does not
// know for one of the host, so give it a policy (thrust::device, thrust::cuda::par.on(stream)).
//
// Errors: `*it` cannot return an error. An element that lies outside, or whose page fails to load,
// is a T{}, and the runtime keeps the first such error with file and offset: ask
// runtime::view_status() after the kernel.
//
// Cost: as of a view (penstock/view.hpp): in the cache two looks at the page word around the loads
// of the element, which wait for each other. A library loads an element of its type at a time, so
// the larger the element, the nearer to the speed of plain memory: reduce numbers as uint4 or as a
// struct of four of them, and compile for 64 registers (docs/guide/views.md says how).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "penstock/base/macros.hpp"
#include "penstock/engine/element_source.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"
#include "penstock/shared_file.hpp"

namespace penstock {

class runtime;

template <typename T>
class file_iterator {
    static_assert(engine::is_wide_element<T>,
                  "an element has 1, 2, 4, 8, 16, 32 or 64 bytes and is trivially copyable");

public:
    using value_type = T;
    using reference = T;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::random_access_iterator_tag;
    using iterator_concept = std::random_access_iterator_tag;

    // One that belongs to no file; it may be assigned to and compared.
    file_iterator() = default;
    PENSTOCK_HD file_iterator(const engine::element_source& source, std::uint64_t at)
        : source_(source), at_(at) {}

    PENSTOCK_HD PENSTOCK_INLINE T operator*() const { return engine::element_at<T>(source_, at_); }
    PENSTOCK_HD PENSTOCK_INLINE T operator[](difference_type n) const {
        return engine::element_at<T>(source_, at_ + bytes_of(n));
    }

    PENSTOCK_HD PENSTOCK_INLINE file_iterator& operator+=(difference_type n) {
        at_ += bytes_of(n);
        return *this;
    }
    PENSTOCK_HD PENSTOCK_INLINE file_iterator& operator-=(difference_type n) {
        at_ -= bytes_of(n);
        return *this;
    }
    PENSTOCK_HD PENSTOCK_INLINE file_iterator& operator++() { return *this += 1; }
    PENSTOCK_HD PENSTOCK_INLINE file_iterator& operator--() { return *this -= 1; }
    PENSTOCK_HD PENSTOCK_INLINE file_iterator operator++(int) {
        const file_iterator before = *this;
        *this += 1;
        return before;
    }
    PENSTOCK_HD PENSTOCK_INLINE file_iterator operator--(int) {
        const file_iterator before = *this;
        *this -= 1;
        return before;
    }
    friend PENSTOCK_HD PENSTOCK_INLINE file_iterator operator+(file_iterator i, difference_type n) {
        return i += n;
    }
    friend PENSTOCK_HD PENSTOCK_INLINE file_iterator operator+(difference_type n, file_iterator i) {
        return i += n;
    }
    friend PENSTOCK_HD PENSTOCK_INLINE file_iterator operator-(file_iterator i, difference_type n) {
        return i -= n;
    }
    // Of iterators of one range; so the comparisons.
    friend PENSTOCK_HD PENSTOCK_INLINE difference_type operator-(const file_iterator& a,
                                                                 const file_iterator& b) {
        return static_cast<difference_type>(a.at_ - b.at_) /
               static_cast<difference_type>(sizeof(T));
    }
    friend PENSTOCK_HD PENSTOCK_INLINE bool operator==(const file_iterator& a,
                                                       const file_iterator& b) {
        return a.at_ == b.at_;
    }
    friend PENSTOCK_HD PENSTOCK_INLINE std::strong_ordering operator<=>(const file_iterator& a,
                                                                        const file_iterator& b) {
        // An iterator before the range is less: the place of its byte has wrapped.
        return static_cast<std::int64_t>(a.at_) <=> static_cast<std::int64_t>(b.at_);
    }

private:
    static PENSTOCK_HD PENSTOCK_INLINE std::uint64_t bytes_of(difference_type n) {
        return static_cast<std::uint64_t>(n) * sizeof(T);
    }

    engine::element_source source_{};
    std::uint64_t at_ = 0;  // byte of the file
};

// The same number, and the compiler has to have it here. For functors of transform iterators that
// make a number of a wide element: compilers like to keep the element and to make the number of it
// when it is wanted, and then the elements that a library has in hand exceed a kernel's registers
// (64 bytes with CUDA 13 and CUB's sum: 1604 bytes of a thread went to memory, with this 36).
template <typename Number>
requires std::is_arithmetic_v<Number> &&(sizeof(Number) == 4 || sizeof(Number) == 8)
    PENSTOCK_HD PENSTOCK_INLINE Number evaluated(Number value) {
#if PENSTOCK_ON_DEVICE
    if constexpr (std::is_same_v<Number, double>) asm volatile("" : "+d"(value));
    else if constexpr (std::is_same_v<Number, float>) asm volatile("" : "+f"(value));
    else if constexpr (sizeof(Number) == 8) asm volatile("" : "+l"(value));
    else asm volatile("" : "+r"(value));
#endif
    return value;
}

struct range_options {
    std::uint64_t offset_bytes = 0;  // a multiple of the element's size
    std::uint32_t device = 0;        // place in options::devices
};

namespace detail {

// The source of elements of that size. Errors as of file_range::make.
status source_of_file(runtime& rt, int fd, std::uint64_t element_bytes,
                      const range_options& settings, engine::element_source& out);

}  // namespace detail

// All elements of an open file from an offset on; a piece of an element at the end is left out.
// Trivially copyable; pass it by value. Good while the file is open and the runtime lives.
template <typename T>
class file_range {
public:
    file_range() = default;  // no elements

    // For the host, and for kernels that it launches. On failure `out` stays as it was: -EBADF, the
    // descriptor is not open for reading on that device; -EINVAL, no such device, or an offset that
    // is no multiple of the element's size; -ECHILD, -EIO, -ENODEV, as of the runtime. Takes a look
    // at the device's memory, some tens of microseconds, and allocates nothing.
    static status make(runtime& rt, int fd, const range_options& settings, file_range& out) {
        engine::element_source source;
        if (status s = detail::source_of_file(rt, fd, sizeof(T), settings, source); !s) return s;
        out = file_range(source);
        return {};
    }
    // Of the descriptor that the device has of it (penstock/shared_file.hpp).
    static status make(runtime& rt, const shared_file& file, const range_options& settings,
                       file_range& out) {
        return make(rt, file.of(settings.device), settings, out);
    }
    // In a kernel, or on cpu anywhere. Holds the address of `fs`, which must outlive the iterators:
    // in a kernel declare the parameter `const __grid_constant__ penstock::runtime_ref fs`. A
    // descriptor that is not open, or a wrong offset, gives an empty range.
    PENSTOCK_HD file_range(const runtime_ref& fs, int fd, std::uint64_t offset_bytes = 0) {
        engine::file_handle f{};
        const bool is_open = engine::find_file(fs.view, fd, f);
        source_.cache = &fs.view;  // for the notes of what is outside
        source_.slot = f.slot;
        source_.generation = f.generation;
        if (!is_open || offset_bytes % sizeof(T) != 0) return;
        const std::uint64_t known = fs.view.writes == nullptr
                                        ? engine::pages_of(fs.view, f.size_bytes)
                                        : fs.view.file_records[f.slot].page_count;
        *this = file_range(engine::make_source(fs.view, &fs.view, f, known, f.size_bytes,
                                               offset_bytes, sizeof(T)));
    }

    PENSTOCK_HD file_iterator<T> begin() const { return {source_, source_.first}; }
    PENSTOCK_HD file_iterator<T> end() const { return {source_, source_.first + source_.bytes}; }
    // As the file was when it was opened, or in a kernel when the range was made.
    PENSTOCK_HD std::uint64_t size() const { return count_; }
    PENSTOCK_HD bool empty() const { return count_ == 0; }
    PENSTOCK_HD PENSTOCK_INLINE T operator[](std::uint64_t i) const {
        if (i >= count_)
            return by_address(&outside)(source_.cache, source_.slot, source_.generation,
                                        source_.first, i);
        return engine::element_at<T>(source_, source_.first + i * sizeof(T), true);
    }

private:
    explicit PENSTOCK_HD file_range(const engine::element_source& source)
        : source_(source), count_(source.bytes / sizeof(T)) {}

    static PENSTOCK_HD PENSTOCK_NOINLINE T outside(const engine::cache_view* c, std::uint32_t slot,
                                                   std::uint32_t generation, std::uint64_t first,
                                                   std::uint64_t i) {
        if (c != nullptr)
            engine::note_fault(*c, -ERANGE, slot, generation,
                               engine::byte_of_outside(first, i, sizeof(T)));
        return T{};
    }

    engine::element_source source_{};
    std::uint64_t count_ = 0;
};

}  // namespace penstock
