// The parts of the C++ standard library that headers for kernels use: integers, bytes, memcpy, some
// traits and concepts, error numbers.
//
// nvcc and host compilers have headers for them. NVRTC, which compiles kernels at run time, has
// none, and neither has its user. So for NVRTC they are written here, with the types and values of
// the host library on Linux, since both sides share structures and results.
//
// For NVRTC the templates lie in penstock::std, where code of namespace penstock finds them by the
// name std: a program may bring a namespace std of its own (CuPy's headers do), and two definitions
// of a template would clash. Names of the integers lie in ::std too, where a second definition is
// no error, so that kernels name them as ever.
#pragma once

#include "penstock/base/language.hpp"

#if !defined(__CUDACC_RTC__)

#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#else

namespace std {
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using size_t = decltype(sizeof 0);
using ptrdiff_t = long;
using uintptr_t = unsigned long;
using intptr_t = long;
}  // namespace std

static_assert(sizeof(long) == 8 && sizeof(void*) == 8, "Penstock is for 64-bit Linux");

// Error numbers of Linux. A program that has them already has the same.
#if !defined(EINVAL)
#define ENOENT 2
#define EIO 5
#define EBADF 9
#define ECHILD 10
#define EAGAIN 11
#define ENOMEM 12
#define EACCES 13
#define EFAULT 14
#define EBUSY 16
#define EEXIST 17
#define ENODEV 19
#define EISDIR 21
#define EINVAL 22
#define ENFILE 23
#define EMFILE 24
#define EFBIG 27
#define ENOSPC 28
#define EROFS 30
#define ERANGE 34
#define ENAMETOOLONG 36
#define EXFULL 54
#define ENODATA 61
#define ETIME 62
#define ERESTART 85
#define EOPNOTSUPP 95
#define ENOBUFS 105
#define EDQUOT 122
#define ESHUTDOWN 108
#define ETIMEDOUT 110
#define ESTALE 116
#define ECANCELED 125
#endif

#if !defined(UINT64_MAX)
#define UINT64_MAX 18446744073709551615ul
#endif
#if !defined(INT64_MAX)
#define INT64_MAX 9223372036854775807l
#endif
#if !defined(INT64_MIN)
#define INT64_MIN (-INT64_MAX - 1)
#endif
#if !defined(UINT32_MAX)
#define UINT32_MAX 4294967295u
#endif

namespace penstock::std {

using ::std::int16_t;
using ::std::int32_t;
using ::std::int64_t;
using ::std::int8_t;
using ::std::intptr_t;
using ::std::ptrdiff_t;
using ::std::size_t;
using ::std::uint16_t;
using ::std::uint32_t;
using ::std::uint64_t;
using ::std::uint8_t;
using ::std::uintptr_t;

enum class byte : unsigned char {};

template <typename A, typename B>
inline constexpr bool is_same_v = false;
template <typename A>
inline constexpr bool is_same_v<A, A> = true;
template <typename A, typename B>
concept same_as = is_same_v<A, B>;

template <bool Condition, typename Then, typename Else>
struct conditional {
    using type = Then;
};
template <typename Then, typename Else>
struct conditional<false, Then, Else> {
    using type = Else;
};
template <bool Condition, typename Then, typename Else>
using conditional_t = typename conditional<Condition, Then, Else>::type;

template <typename T>
struct remove_cv {
    using type = T;
};
template <typename T>
struct remove_cv<const T> {
    using type = T;
};
template <typename T>
using remove_cv_t = typename remove_cv<T>::type;

template <typename T>
inline constexpr bool is_floating_point_v =
    is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>;

// Whether T is one of the types.
namespace detail {
template <typename T, typename... Types>
inline constexpr bool is_any_of = (is_same_v<remove_cv_t<T>, Types> || ...);
}  // namespace detail
template <typename T>
inline constexpr bool is_integral_v =
    detail::is_any_of<T, bool, char, signed char, unsigned char, wchar_t, char8_t, char16_t,
                      char32_t, short, unsigned short, int, unsigned, long, unsigned long,
                      long long, unsigned long long>;
template <typename T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <typename T>
constexpr __device__ bool is_signed_number() {
    if constexpr (is_arithmetic_v<T>) return static_cast<T>(-1) < static_cast<T>(0);
    else return false;
}
template <typename T>
inline constexpr bool is_signed_v = is_signed_number<T>();
template <typename T>
inline constexpr bool is_unsigned_v = is_arithmetic_v<T> && !is_signed_number<T>();
template <typename T>
inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);

template <typename From, typename To>
concept convertible_to = requires(From (&from)(), void (&take)(To)) {
    take(from());
    static_cast<To>(from());
};

inline __device__ void* memcpy(void* to, const void* from, size_t bytes) {
    return ::memcpy(to, from, bytes);
}
inline __device__ void* memset(void* to, int value, size_t bytes) {
    return ::memset(to, value, bytes);
}

}  // namespace penstock::std

#endif
