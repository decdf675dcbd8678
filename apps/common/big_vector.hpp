// A vector for millions of plain elements that are written right after it was made: its memory may
// have huge pages, and elements that are not given a value have none. An ordinary one is cleared
// first, and faulted in by small pages.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::apps {

template <typename T>
struct big_allocator {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>,
                  "elements without a value must do no harm");
    using value_type = T;

    big_allocator() = default;
    template <typename U>
    big_allocator(const big_allocator<U>&) {}

    T* allocate(std::size_t count) {
        constexpr std::size_t huge = std::size_t{2} << 20;
        if (count > (static_cast<std::size_t>(-1) - huge) / sizeof(T)) throw std::bad_alloc();
        const std::size_t bytes = count * sizeof(T), step = bytes >= 2 * huge ? huge : 64,
                          whole = (bytes + step - 1) / step * step;
        void* const at = std::aligned_alloc(step, whole);
        if (at == nullptr) throw std::bad_alloc();
        if (step == huge)
            ::madvise(
                at, whole,
                MADV_HUGEPAGE);  // where the kernel has none it costs what it would cost anyway
        return static_cast<T*>(at);
    }
    void deallocate(T* at, std::size_t) { std::free(at); }

    template <typename U, typename... Arguments>
    void construct(U* at, Arguments&&... arguments) {
        if constexpr (sizeof...(Arguments) == 0) ::new (static_cast<void*>(at)) U;
        else ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
    }

    template <typename U>
    friend bool operator==(const big_allocator&, const big_allocator<U>&) {
        return true;
    }
};

template <typename T>
using big_vector = std::vector<T, big_allocator<T>>;

}  // namespace penstock::apps
