// Writable element views: a file as an array that a kernel fills or changes.
//
//   penstock::writable_view<double> v(fs, fd, count);   // fd is open for writing, and stays so
//                                                       while the view is used
//   v[i] = x;                                           // by lane; lanes of a warp may write
//                                                       different elements, or not write
//   const double old = v.atomic_add(j, 1.0);            // no addition by any group of the device
//                                                       is lost
//
// Elements and offsets are those of penstock/view.hpp. The file grows as far as elements are
// written; bytes in between read as zeros. Exactly the bytes of the elements count as written
// (penstock/write.hpp says when they go to the file).
//
// Errors: v[i] = x cannot return an error. An element is dropped if it lies behind `count`, the
// descriptor is not open for writing, or its page cannot be pinned. The runtime keeps the first
// such error with file and offset: ask runtime::view_status() after the kernel.
//
// Cost: a pin and an unpin of each page that the lanes of a warp meet together, an atomic for each
// element's mark, and one for the page; a page that is not in the cache and of which the file has
// bytes is read first. For whole runs of bytes write() is faster.
//
// Thread safety: as file.hpp. If two lanes write one element, it gets the value of one of them. A
// view is trivially copyable and holds the address of the runtime_ref it was made from, which must
// outlive it: in a kernel declare the parameter `const __grid_constant__ penstock::runtime_ref fs`.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/element_write.hpp"
#include "penstock/view.hpp"
#include "penstock/write.hpp"

namespace penstock {

template <typename T>
class writable_view {
    static_assert(engine::is_element<T>,
                  "an element has 1, 2, 4, 8 or 16 bytes and is trivially copyable");

public:
    class element {
    public:
        PENSTOCK_HD const element& operator=(const T& value) const {
            view_.put(at_, value);
            return *this;
        }
        PENSTOCK_HD const element& operator=(const element& other) const {
            return *this = static_cast<T>(other);
        }
        element(const element&) = default;
        // Like view<T>: an element that is not in the file reads as zero and is noted as a fault.
        PENSTOCK_HD operator T() const { return view_.get(at_); }

    private:
        friend class writable_view;
        PENSTOCK_HD element(const writable_view& view, std::uint64_t at) : view_(view), at_(at) {}
        const writable_view& view_;
        std::uint64_t at_;
    };

    // `count` elements from byte `offset_bytes` on may be written, whether the file has them
    // already or not. A descriptor that is not open for writing, or an offset that is no multiple
    // of the element's size, gives an empty view.
    PENSTOCK_HD writable_view(const runtime_ref& fs, int fd, std::uint64_t count,
                              std::uint64_t offset_bytes = 0)
        : cache_(&fs.view), first_byte_(offset_bytes) {
        engine::file_handle file{};
        const bool good = fs.view.writes != nullptr &&
                          engine::find_file(fs.view, fd, file, engine::may_read) &&
                          offset_bytes % sizeof(T) == 0 && offset_bytes <= INT64_MAX &&
                          count <= (INT64_MAX - offset_bytes) / sizeof(T);
        slot_ = file.slot;
        generation_ = engine::descriptor_generation(fd);
        size_ = good ? count : 0;
    }

    PENSTOCK_HD std::uint64_t size() const { return size_; }
    PENSTOCK_HD element operator[](std::uint64_t i) const { return {*this, i}; }

    PENSTOCK_HD void put(std::uint64_t i, const T& value) const {
        change(i, engine::put_element<T>{value});
    }

    // Adds `value` and returns the former value. For 4 and 8 byte integers, float and double.
    PENSTOCK_HD T atomic_add(std::uint64_t i, T value) const {
        static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                      "atomic_add is for numbers of 4 or 8 bytes");
        return change(i, engine::add_to_element<T>{value});
    }

    PENSTOCK_HD T get(std::uint64_t i) const {
        const std::uint64_t at = first_byte_ + i * sizeof(T);
        const engine::file_handle file = engine::handle_of(*cache_, slot_);
        if (i >= size_ || at + sizeof(T) > file.size_bytes) return outside(i);
#if PENSTOCK_ON_DEVICE
        T value;
        if (engine::try_element(*cache_, file, at, value)) return value;
        return by_address(&engine::element_missing<T>)(*cache_, slot_, at);
#else
        T value{};
        const std::int64_t got = engine::read_file(
            lane{}, *cache_, file, reinterpret_cast<std::byte*>(&value), sizeof(T), at);
        if (got == static_cast<std::int64_t>(sizeof(T))) return value;
        engine::note_fault(*cache_, got < 0 ? got : -ESTALE, slot_, generation_, at);
        return T{};
#endif
    }

private:
    template <typename Change>
    PENSTOCK_HD T change(std::uint64_t i, const Change& operation) const {
        const std::uint64_t at = first_byte_ + i * sizeof(T);
        if (i >= size_) return outside(i);
#if PENSTOCK_ON_DEVICE
        return by_address(&engine::change_element<T, Change>)(*cache_, slot_, at, operation);
#else
        return engine::change_element_here<T>(*cache_, slot_, at, operation);
#endif
    }
    PENSTOCK_HD PENSTOCK_NOINLINE T outside(std::uint64_t i) const {
        engine::note_fault(*cache_, -ERANGE, slot_, generation_,
                           engine::byte_of_outside(first_byte_, i, sizeof(T)));
        return T{};
    }

    const engine::cache_view* cache_;
    std::uint64_t first_byte_, size_ = 0;
    std::uint32_t slot_ = 0, generation_ = 0;
};

}  // namespace penstock
