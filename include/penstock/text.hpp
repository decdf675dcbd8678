// Text in kernels, the same on GPU and CPU: finding, comparing, copying, taking apart, and numbers
// to text and back. The part of the C library that a kernel lacks when it parses a file or prints
// to it.
//
// Groups: every call is by the whole group with equal arguments; a single thread passes `lane{}`,
// for which no convergence is needed. Text lies in memory that every thread of the group reaches. A
// call sees what the threads of its group wrote before it, and when it returns every thread sees
// what the call wrote and has the same result.
//
// Bounds: no call reads or writes outside of the sizes that it is given, but it may read all of
// them, also behind the place that it finds; a zero byte ends text only where this says so. Text is
// bytes: no locale, and bytes from 0x80 up compare as larger. A failed call changes nothing.
// -EINVAL: a negative size, null with a size above 0, or text that overlaps the room that the call
// may write to. No call waits. Thread safety: no other thread may change text that a call reads, or
// use memory that it writes, meanwhile.
#pragma once

#include <cerrno>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "penstock/group/concept.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::text {

// A piece of text, which need not end by a zero byte.
struct part {
    const char* bytes;
    std::int64_t size;
};

// A number that format writes in hexadecimal, small letters, without a prefix.
struct hex {
    std::uint64_t value;
};

// The groups that agree on the first place that any of their threads found: lane, tile, warp,
// block.
template <typename Group>
concept finding_group = narrow_group<Group> || group_of_warps<Group>;

namespace detail {

inline constexpr std::uint64_t nowhere = ~std::uint64_t{0};
inline constexpr std::uint64_t stretch_bytes = 8;  // that a thread looks at in a turn

constexpr PENSTOCK_HD bool is_sound(const part& p) {
    return p.size >= 0 && (p.bytes != nullptr || p.size == 0);
}

// Do they share a byte? By address: the two may belong to different objects.
PENSTOCK_HD inline bool overlap(const char* a, std::int64_t a_bytes, const char* b,
                                std::int64_t b_bytes) {
    const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
    return a_bytes > 0 && b_bytes > 0 && x < y + static_cast<std::uint64_t>(b_bytes) &&
           y < x + static_cast<std::uint64_t>(a_bytes);
}

// The least place of any thread. Places of a higher rank are never before those of a lower one.
template <finding_group Group>
PENSTOCK_HD std::uint64_t first_of(const Group& g, std::uint64_t place) {
    if constexpr (narrow_group<Group>) {
        const std::uint32_t found = g.votes(place != nowhere);
        if (found == 0) return nowhere;
        std::uint32_t rank = 0;
        while (((found >> rank) & 1) == 0) ++rank;
        return g.from_rank(place, rank);
    } else {
        return g.least(place);
    }
}

// The first i of [0, end) for which found(i), or nowhere. Neighbouring threads take neighbouring
// stretches, and all of them stop after the turn in which one found a place.
template <finding_group Group, typename Found>
PENSTOCK_HD std::uint64_t first_where(const Group& g, std::uint64_t end, const Found& found) {
    const std::uint64_t turn = g.size() * stretch_bytes;
    for (std::uint64_t base = 0; base < end; base += turn) {
        std::uint64_t place = nowhere;
        const std::uint64_t from = base + g.rank() * stretch_bytes;
        for (std::uint64_t i = from; i < from + stretch_bytes && i < end && place == nowhere; ++i)
            if (found(i)) place = i;
        place = first_of(g, place);
        if (place != nowhere) return place;
    }
    return nowhere;
}

constexpr PENSTOCK_HD std::int64_t digits_of(std::uint64_t value, std::uint32_t base) {
    std::int64_t digits = 1;
    for (; value >= base; value /= base) ++digits;
    return digits;
}

// The lowest `digits` digits.
constexpr PENSTOCK_HD void put_digits(char* to, std::uint64_t value, std::int64_t digits,
                                      std::uint32_t base) {
    for (std::int64_t i = digits; i-- > 0; value /= base) {
        const auto digit = static_cast<std::uint32_t>(value % base);
        to[i] = static_cast<char>(digit < 10 ? '0' + digit : 'a' + (digit - 10));
    }
}

// Of up to 64 bits: where a compiler's 128-bit type counts as an integer, it does not fit here.
template <typename Number>
concept integer =
    std::integral<Number> && !std::same_as<Number, bool> && sizeof(Number) <= sizeof(std::uint64_t);

// -value of a negative one, also of the least.
template <integer Number>
constexpr PENSTOCK_HD std::uint64_t magnitude(Number value) {
    const auto bits = static_cast<std::uint64_t>(value);
    return std::is_signed_v<Number> && value < 0 ? 0 - bits : bits;
}

// What format writes: for each kind its size, and the bytes, by all threads or by the leader.
PENSTOCK_HD inline part as_part(const part& p) { return p; }
PENSTOCK_HD inline part as_part(const char* text) {
    std::int64_t size = 0;
    while (text != nullptr && text[size] != '\0') ++size;
    return {text, size};
}

template <typename Item>
concept textual = std::same_as<Item, part> || std::convertible_to<Item, const char*>;

template <typename Item>
PENSTOCK_HD std::int64_t size_of(const Item& item) {
    if constexpr (textual<Item>) return as_part(item).size;
    else if constexpr (std::same_as<Item, char>) return 1;
    else if constexpr (std::same_as<Item, hex>) return digits_of(item.value, 16);
    else return digits_of(magnitude(item), 10) + (std::is_signed_v<Item> && item < 0 ? 1 : 0);
}

template <typename Item>
PENSTOCK_HD bool may_write(const Item& item, const char* to, std::int64_t room) {
    if constexpr (textual<Item>) {
        const part p = as_part(item);
        // The zero byte that ends an item is read again when the item is written.
        constexpr std::int64_t end_mark = std::same_as<Item, part> ? 0 : 1;
        return is_sound(p) &&
               !overlap(to, room, p.bytes, p.size + (p.bytes != nullptr ? end_mark : 0));
    } else {
        return true;
    }
}

template <typename Group, typename Item>
PENSTOCK_HD void put(const Group& g, char*& to, const Item& item) {
    const std::int64_t size = size_of(item);
    if constexpr (textual<Item>) {
        const part p = as_part(item);
        for (std::int64_t i = g.rank(); i < size; i += g.size()) to[i] = p.bytes[i];
    } else if (g.is_leader()) {
        if constexpr (std::same_as<Item, char>) {
            *to = item;
        } else if constexpr (std::same_as<Item, hex>) {
            put_digits(to, item.value, size, 16);
        } else {
            const std::int64_t digits = digits_of(magnitude(item), 10);
            if (digits < size) *to = '-';
            put_digits(to + (size - digits), magnitude(item), digits, 10);
        }
    }
    to += size;
}

}  // namespace detail

// What format takes: parts, text that ends by a zero byte, single characters, integers, hex.
template <typename Item>
concept printable = detail::textual<Item> || std::same_as<Item, hex> || detail::integer<Item>;

// strchr, memchr. The place of the first such byte, or -ENOENT. Cost: reads up to it, every thread
// 8 bytes between two votes of the group.
template <finding_group Group>
PENSTOCK_HD std::int64_t find_byte(const Group& g, const part& in, char wanted) {
    if (!detail::is_sound(in)) return -EINVAL;
    g.sync();  // every thread's part of the text is there; so in all calls below
    const std::uint64_t at =
        detail::first_where(g, static_cast<std::uint64_t>(in.size),
                            [&](std::uint64_t i) { return in.bytes[i] == wanted; });
    return at == detail::nowhere ? -ENOENT : static_cast<std::int64_t>(at);
}

// strlen, with a bound: how many bytes come before the first zero byte, or `room` if none of so
// many is zero. Cost: that of find_byte.
template <finding_group Group>
PENSTOCK_HD std::int64_t length(const Group& g, const char* text, std::int64_t room) {
    const std::int64_t at = find_byte(g, {text, room}, '\0');
    return at == -ENOENT ? room : at;
}

// strstr. The place of the first occurrence of `wanted`, 0 if it is empty; or -ENOENT. Cost: that
// of find_byte, and at each place where the first byte agrees the bytes up to the first that
// differs, by the thread that found it: at worst the product of the two sizes.
template <finding_group Group>
PENSTOCK_HD std::int64_t find(const Group& g, const part& in, const part& wanted) {
    if (!detail::is_sound(in) || !detail::is_sound(wanted)) return -EINVAL;
    if (wanted.size == 0) return 0;
    if (wanted.size > in.size) return -ENOENT;
    g.sync();
    const auto end = static_cast<std::uint64_t>(in.size - wanted.size + 1);
    const std::uint64_t at = detail::first_where(g, end, [&](std::uint64_t i) {
        std::int64_t same = 0;
        while (same < wanted.size &&
               in.bytes[i + static_cast<std::uint64_t>(same)] == wanted.bytes[same])
            ++same;
        return same == wanted.size;
    });
    return at == detail::nowhere ? -ENOENT : static_cast<std::int64_t>(at);
}

// memcmp and strcmp: -1, 0 or 1, as `a` comes before `b`, is equal, or comes behind; of two texts
// that agree the shorter comes first. -EINVAL is below -1. Cost: that of find_byte.
template <finding_group Group>
PENSTOCK_HD int compare(const Group& g, const part& a, const part& b) {
    if (!detail::is_sound(a) || !detail::is_sound(b)) return -EINVAL;
    g.sync();
    const std::int64_t both = a.size < b.size ? a.size : b.size;
    const std::uint64_t at =
        detail::first_where(g, static_cast<std::uint64_t>(both),
                            [&](std::uint64_t i) { return a.bytes[i] != b.bytes[i]; });
    if (at != detail::nowhere) {
        const auto x = static_cast<unsigned char>(a.bytes[at]),
                   y = static_cast<unsigned char>(b.bytes[at]);
        return x < y ? -1 : 1;
    }
    return a.size == b.size ? 0 : a.size < b.size ? -1 : 1;
}

// sprintf: writes the items one behind the other and a zero byte to `to`, which has room for `room`
// bytes. Returns the count without the zero byte, or -ENOSPC. Integers have up to 64 bits and are
// decimal (`char` is a character, and the other one-byte types are numbers); text that is given as
// a pointer ends by a zero byte, null is empty. Cost: measures all items, then writes them; text by
// all threads, numbers by the leader.
//
//   char line[80];
//   std::int64_t bytes = text::format(lane{}, line, sizeof line, word, '\t', count, '\n');
template <group Group, printable... Items>
PENSTOCK_HD std::int64_t format(const Group& g, char* to, std::int64_t room,
                                const Items&... items) {
    if (room < 0 || (to == nullptr && room > 0)) return -EINVAL;
    g.sync();
    bool good = true;
    std::int64_t size = 0;
    // Sizes are added while they fit, so that hostile ones cannot overflow the sum.
    [[maybe_unused]] const auto measure = [&](const auto& item) {
        good = good && detail::may_write(item, to, room);
        const std::int64_t more = good ? detail::size_of(item) : 0;
        size = more < room && size < room - more ? size + more : room;
    };
    (measure(items), ...);
    if (!good) return -EINVAL;
    if (size >= room) return -ENOSPC;
    char* at = to;
    (detail::put(g, at, items), ...);
    if (g.is_leader()) *at = '\0';
    g.sync();
    return size;
}

// strcpy, with a bound: `from` and a zero byte. Returns the count without it, or -ENOSPC. Cost: the
// copy, by all threads.
template <group Group>
PENSTOCK_HD std::int64_t copy(const Group& g, char* to, std::int64_t room, const part& from) {
    return format(g, to, room, from);
}

// strcat, with a bound: puts the items of format behind the text in `to`, up to its zero byte.
// Returns the new length; -EINVAL if none of the `room` bytes is zero; -ENOSPC. An item may be a
// part of the text in `to`, for the bytes that are written begin behind it. Cost: those of length
// and format.
template <finding_group Group, printable... Items>
PENSTOCK_HD std::int64_t append(const Group& g, char* to, std::int64_t room,
                                const Items&... items) {
    const std::int64_t before = length(g, to, room);
    if (before < 0 || before == room) return -EINVAL;
    const std::int64_t more = format(g, to + before, room - before, items...);
    return more < 0 ? more : before + more;
}

// strtok, without hidden state: the next piece of `rest` between bytes of `separators`, of which
// any number may stand together. Moves `rest` behind it. At the end, and if an argument is unsound,
// the piece has null for its bytes, and `rest` is empty. Every thread has a `rest` of its own, all
// equal. Cost: that of find_byte.
template <finding_group Group>
PENSTOCK_HD part next_part(const Group& g, part& rest, const part& separators) {
    part piece{nullptr, 0};
    if (!detail::is_sound(rest) || !detail::is_sound(separators)) rest.size = 0;
    if (rest.size <= 0) return piece;
    g.sync();
    std::uint64_t set[4] = {};
    for (std::int64_t i = 0; i < separators.size; ++i) {
        const auto byte = static_cast<unsigned char>(separators.bytes[i]);
        set[byte >> 6] |= std::uint64_t{1} << (byte & 63);
    }
    const auto separates = [&](std::uint64_t i) {
        const auto byte = static_cast<unsigned char>(rest.bytes[i]);
        return ((set[byte >> 6] >> (byte & 63)) & 1) != 0;
    };
    const std::uint64_t begin = detail::first_where(g, static_cast<std::uint64_t>(rest.size),
                                                    [&](std::uint64_t i) { return !separates(i); });
    const std::int64_t skipped =
        begin == detail::nowhere ? rest.size : static_cast<std::int64_t>(begin);
    rest = {rest.bytes + skipped, rest.size - skipped};
    if (rest.size == 0) return piece;
    const std::uint64_t end =
        detail::first_where(g, static_cast<std::uint64_t>(rest.size), separates);
    piece = {rest.bytes, end == detail::nowhere ? rest.size : static_cast<std::int64_t>(end)};
    rest = {rest.bytes + piece.size, rest.size - piece.size};
    return piece;
}

// strtoll and strtoull, decimal: a sign (minus only where the type has negative numbers, or plus)
// and digits at the beginning of `from`. Returns how many bytes the number has; -EINVAL where none
// begins there, and blanks are not skipped; -ERANGE if it does not fit `out`. Every thread reads it
// for itself. Cost: the digits.
template <group Group, detail::integer Number>
PENSTOCK_HD std::int64_t read_number(const Group& g, const part& from, Number& out) {
    if (!detail::is_sound(from)) return -EINVAL;
    g.sync();
    constexpr auto ones = static_cast<std::uint64_t>(-1);
    constexpr std::uint64_t most = std::is_signed_v<Number> ? ones >> (65 - 8 * sizeof(Number))
                                                            : ones >> (64 - 8 * sizeof(Number));
    std::int64_t at = 0;
    const bool negative = std::is_signed_v<Number> && from.size > 0 && from.bytes[0] == '-';
    if (from.size > 0 && (negative || from.bytes[0] == '+')) ++at;
    const std::int64_t first = at;
    const std::uint64_t limit = most + (negative ? 1 : 0);
    std::uint64_t value = 0;
    bool fits = true;
    for (; at < from.size && from.bytes[at] >= '0' && from.bytes[at] <= '9'; ++at) {
        const auto digit = static_cast<std::uint64_t>(from.bytes[at] - '0');
        fits = fits && value <= limit / 10 && digit <= limit - value * 10;
        if (fits) value = value * 10 + digit;
    }
    if (at == first) return -EINVAL;
    if (!fits) return -ERANGE;
    out = static_cast<Number>(negative ? 0 - value : value);
    return at;
}

}  // namespace penstock::text
