// Which vectors this processor has, for loops that are compiled once for each kind.
#pragma once

namespace penstock::apps {

enum class vectors { none, avx2, avx512 };  // avx2: with fused multiply and add

inline vectors vectors_here() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") != 0) return vectors::avx512;
    if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
        return vectors::avx2;
#endif
    return vectors::none;
}

}  // namespace penstock::apps
