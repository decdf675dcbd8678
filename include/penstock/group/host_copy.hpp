// A copy on the host that may run while another thread overwrites its source. It is for readers
// that check afterwards whether the copied bytes are good (engine/read.hpp). Such a reader changes
// no word that other readers load, so a hot page costs all processors together no more than one
// processor.
//
// In C++ an ordinary memcpy must not race. So the copy is machine code: the compiler knows nothing
// of its loads and stores. On x86 no load of a thread passes a later load of that thread, so no
// load of the copy moves past the second look at the page word. Nothing depends on a load being
// whole. A sanitizer cannot see into the copy, and other processors promise less. There
// PENSTOCK_HOST_COPIES_RACE is 0, and the engine pins the page and uses memcpy.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define PENSTOCK_HOST_COPIES_RACE 0
#endif
#endif
#if !defined(PENSTOCK_HOST_COPIES_RACE)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PENSTOCK_HOST_COPIES_RACE 1
#else
#define PENSTOCK_HOST_COPIES_RACE 0
#endif
#endif

#if PENSTOCK_HOST_COPIES_RACE
namespace penstock::detail {

// Any alignment; reads and writes exactly [0, bytes) of both sides, forwards. It is one
// instruction, which processors of the last ten years execute at the speed of the vector loops of
// the C library. That library uses it too, for sizes from a few KiB up.
inline void copy_while_racing(std::byte* to, const std::byte* from, std::size_t bytes) {
    asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(bytes) : : "memory");
}

}  // namespace penstock::detail
#endif
