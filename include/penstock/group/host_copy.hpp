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

#include "penstock/base/standard.hpp"

#if defined(__CUDACC_RTC__)
#define PENSTOCK_HOST_COPIES_RACE 0
#elif defined(__has_feature)
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

// One load and one store; with two, the loads come first.
inline void copy_8_while_racing(std::byte* to, const std::byte* from) {
    asm volatile("movq (%1), %%rax\n\tmovq %%rax, (%0)" : : "r"(to), "r"(from) : "rax", "memory");
}
inline void copy_16_while_racing(std::byte* to, const std::byte* from) {
    asm volatile("movups (%1), %%xmm0\n\tmovups %%xmm0, (%0)"
                 :
                 : "r"(to), "r"(from)
                 : "xmm0", "memory");
}
inline void copy_64_while_racing(std::byte* to, const std::byte* from) {
    asm volatile(
        "movups (%1), %%xmm0\n\tmovups 16(%1), %%xmm1\n\t"
        "movups 32(%1), %%xmm2\n\tmovups 48(%1), %%xmm3\n\t"
        "movups %%xmm0, (%0)\n\tmovups %%xmm1, 16(%0)\n\t"
        "movups %%xmm2, 32(%0)\n\tmovups %%xmm3, 48(%0)"
        :
        : "r"(to), "r"(from)
        : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

// Any alignment; reads and writes only bytes of [0, bytes) of both sides, some of them twice: the
// last piece of a copy may overlap the one before. A long copy is one instruction, which processors
// of the last ten years execute at the speed of the vector loops of the C library. For one
// of 64 to 512 bytes it takes twice as long as pieces do, for one of 2 KiB as long.
inline void copy_while_racing(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t long_bytes = 2048;
    if (bytes < 8 || bytes > long_bytes) {
        asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(bytes) : : "memory");
    } else if (bytes < 16) {
        copy_8_while_racing(to, from);
        copy_8_while_racing(to + bytes - 8, from + bytes - 8);
    } else if (bytes < 64) {
        for (std::size_t i = 0; i + 16 < bytes; i += 16) copy_16_while_racing(to + i, from + i);
        copy_16_while_racing(to + bytes - 16, from + bytes - 16);
    } else {
        for (std::size_t i = 0; i + 64 < bytes; i += 64) copy_64_while_racing(to + i, from + i);
        copy_64_while_racing(to + bytes - 64, from + bytes - 64);
    }
}

}  // namespace penstock::detail
#endif
