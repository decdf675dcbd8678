// Element views: a file as an array that a kernel indexes.
//
//   penstock::view<double> v(fs, fd);      // fd is open, and stays so while the view is used
//   double x = v[i];                       // by lane; lanes of a warp may ask for different
//                                          elements, or not ask
//
// Elements are 1, 2, 4, 8 or 16 bytes, trivially copyable, in the byte order of the machine. The
// view starts at a byte offset that is a multiple of the element's size; the view leaves out a
// piece of an element at the end of the file.
//
// Errors: v[i] cannot return an error. An element that lies outside, or whose page fails to load,
// is zero, and the runtime keeps the first such error with file and offset: ask
// runtime::view_status() after the kernel.
//
// Cost: in the cache, two loads of the page word around that of the element, no atomic update, and
// no count of hits; else one round trip or window fetch. Lanes of a warp that miss together share
// it, with up to eight pages in flight. On the host v[i] is a read of one element.
//
// Thread safety: as file.hpp. A view is trivially copyable and holds the address of the runtime_ref
// it was made from, which must outlive it: in a kernel declare the parameter `const
// __grid_constant__ penstock::runtime_ref fs`.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/element.hpp"
#include "penstock/engine/gather.hpp"
#include "penstock/file.hpp"

namespace penstock {

template <typename T>
class view {
    static_assert(engine::is_element<T>,
                  "an element has 1, 2, 4, 8 or 16 bytes and is trivially copyable");

public:
    // A descriptor that is not open, or an offset that is no multiple of the element's size, gives
    // an empty view.
    PENSTOCK_HD view(const runtime_ref& fs, int fd, std::uint64_t offset_bytes = 0)
        : cache_(&fs.view), first_byte_(offset_bytes) {
        if (!engine::find_file(fs.view, fd, file_) || offset_bytes % sizeof(T) != 0)
            file_.size_bytes = 0;
        size_ = offset_bytes < file_.size_bytes ? (file_.size_bytes - offset_bytes) / sizeof(T) : 0;
    }

    // The number of elements in the file, as it was when it was opened.
    PENSTOCK_HD std::uint64_t size() const { return size_; }

    PENSTOCK_HD PENSTOCK_INLINE T operator[](std::uint64_t i) const {
        if (i >= size_)
            return by_address(&outside)(*cache_, file_.slot, file_.generation, first_byte_, i);
        const std::uint64_t at = first_byte_ + i * sizeof(T);
#if PENSTOCK_ON_DEVICE
        T value;
        if (engine::try_element(*cache_, file_, at, value)) return value;
        return by_address(&engine::element_missing<T>)(*cache_, file_.slot, at);
#else
        T value{};
        const std::int64_t got = engine::read_file(
            lane{}, *cache_, file_, reinterpret_cast<std::byte*>(&value), sizeof(T), at);
        if (got == static_cast<std::int64_t>(sizeof(T))) return value;
        engine::note_fault(*cache_, got < 0 ? got : -ESTALE, file_.slot, file_.generation, at);
        return T{};
#endif
    }

    // Whole group: visit(i, element) for each of `count` elements from `first` on, each in one of
    // the group's threads, in no fixed order among threads. An element costs no look-up: on a GPU
    // two loads of the page word go with each 64 bytes of every thread, and a page is pinned only
    // if it had to be loaded or changed its frame meanwhile; elsewhere each page is pinned once.
    // Returns how many elements were visited: fewer than asked at the end of the file or before a
    // page that could not be loaded; a negative errno if that was the first page. On the host the
    // visitor may throw, which ends the call.
    template <group Group, typename Visit>
    PENSTOCK_HD std::int64_t for_each(const Group& g, std::uint64_t first, std::uint64_t count,
                                      const Visit& visit) const {
        const std::uint64_t size = engine::share_count(g, *cache_, size_);
        if (first >= size) return 0;
        return engine::visit_elements<T>(g, *cache_, file_, first_byte_, first,
                                         count < size - first ? count : size - first, visit);
    }

    // Whole group: copies up to `count` elements from `first` on to `out`, which every thread of
    // the group may read when it returns. Returns how many: fewer than asked at the end of the file
    // or before a page that could not be loaded; a negative errno if that was the first page. Up to
    // eight missing pages are in flight together. From the host, on the cpu back end, this is the
    // fast way to read many elements.
    template <group Group>
    PENSTOCK_HD std::int64_t copy_to(const Group& g, T* out, std::uint64_t first,
                                     std::uint64_t count) const {
        const std::uint64_t size = engine::share_count(g, *cache_, size_);
        if (first >= size || count == 0) return 0;
        if (out == nullptr) return -EINVAL;
        const std::uint64_t wanted = count < size - first ? count : size - first;
        engine::file_handle file = file_;
        file.size_bytes = first_byte_ + size * sizeof(T);  // in each thread the same
        const std::int64_t got =
            engine::read_file(g, *cache_, file, reinterpret_cast<std::byte*>(out),
                              wanted * sizeof(T), first_byte_ + first * sizeof(T));
        g.sync();  // every thread's part is there before any of them reads it
        if (g.is_leader()) {
            if (got > 0)
                engine::count(g, *cache_, engine::count_bytes_read,
                              static_cast<std::uint64_t>(got));
            else engine::count(g, *cache_, engine::count_errors);
        }
        return got < 0 ? got : got / static_cast<std::int64_t>(sizeof(T));
    }
#if !defined(__CUDACC_RTC__)
    std::int64_t copy_to(T* out, std::uint64_t first, std::uint64_t count) const {
        return copy_to(lane{}, out, first, count);
    }
#endif

    // For gather (penstock/gather.hpp): the elements as rows.
    PENSTOCK_HD const engine::cache_view& cache() const { return *cache_; }
    PENSTOCK_HD const engine::file_handle& file() const { return file_; }
    PENSTOCK_HD engine::row_geometry geometry() const {
        return {size_, first_byte_, sizeof(T), sizeof(T)};
    }

private:
    static PENSTOCK_HD PENSTOCK_NOINLINE T outside(const engine::cache_view& c, std::uint32_t slot,
                                                   std::uint32_t generation,
                                                   std::uint64_t first_byte, std::uint64_t i) {
        engine::note_fault(c, -ERANGE, slot, generation,
                           engine::byte_of_outside(first_byte, i, sizeof(T)));
        return T{};
    }

    const engine::cache_view* cache_;
    engine::file_handle file_{};
    std::uint64_t first_byte_, size_ = 0;
};

}  // namespace penstock
