// Text functions of kernels against the C library, by a single thread and by a group of several,
// with hostile input: no end mark, empty, overlapping, at the limits.
#include <gtest/gtest.h>

#include <barrier>
#include <climits>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/hash.hpp"
#include "penstock/text.hpp"

namespace penstock::test {
namespace {

// What the threads of a group share.
struct meeting {
    explicit meeting(std::uint32_t threads) : values(threads), gate(threads) {}
    std::vector<std::uint64_t> values;
    std::barrier<> gate;
};

// Threads of the host as one narrow group. Values pass through memory between two meetings.
struct host_group : lane {
    host_group(meeting& m, std::uint32_t r) : at(&m), number(r) {}
    std::uint32_t size() const { return static_cast<std::uint32_t>(at->values.size()); }
    std::uint32_t rank() const { return number; }
    bool is_leader() const { return number == 0; }
    void sync() const { at->gate.arrive_and_wait(); }
    std::uint64_t broadcast(std::uint64_t value) const { return from_rank(value, 0); }
    std::uint32_t votes(bool flag) const {
        std::uint32_t bits = 0;
        exchange(flag ? 1 : 0, [&] {
            for (std::uint32_t i = 0; i < size(); ++i) bits |= at->values[i] != 0 ? 1u << i : 0;
        });
        return bits;
    }
    bool all(bool flag) const { return votes(!flag) == 0; }
    template <typename Value>
    Value from_rank(Value value, std::uint32_t rank) const {
        Value out{};
        exchange(value, [&] { out = static_cast<Value>(at->values[rank]); });
        return out;
    }
    template <typename Read>
    void exchange(std::uint64_t value, const Read& read) const {
        at->values[number] = value;
        sync();
        read();
        sync();
    }
    meeting* at;
    std::uint32_t number;
};
static_assert(narrow_group<host_group>);

// The result of call(group), by one thread and by five, which all have to give the same.
template <typename Call>
auto by_all(const Call& call) {
    constexpr std::uint32_t threads = 5;
    meeting place(threads);
    std::vector<decltype(call(lane{}))> results(threads);
    std::vector<std::thread> others;
    for (std::uint32_t i = 0; i < threads; ++i)
        others.emplace_back([&, i] { results[i] = call(host_group(place, i)); });
    for (std::thread& t : others) t.join();
    for (std::uint32_t i = 1; i < threads; ++i) EXPECT_EQ(results[i], results[0]) << "rank " << i;
    return results[0];
}

text::part part_of(const std::string& s) { return {s.data(), static_cast<std::int64_t>(s.size())}; }

int sign(int value) { return (value > 0) - (value < 0); }

// Few letters, so that beginnings of words repeat; now and then a zero byte and a high one.
std::string random_text(std::uint64_t seed, std::uint64_t most) {
    std::string out(mix64(seed) % (most + 1), ' ');
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] =
            "aab,\0 \xe9"
            "b"[mix64(seed * 1000003 + i) % 8];
    return out;
}

TEST(text, finds_and_compares_as_the_c_library_does) {
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        const std::string a = random_text(seed, 90), b = random_text(seed + 7777, 4);
        const bool wide = seed % 30 == 0;  // threads cost time
        const auto same = [&](std::int64_t wanted, const auto& call) {
            ASSERT_EQ(call(lane{}), wanted) << "seed " << seed;
            if (wide) {
                ASSERT_EQ(by_all(call), wanted) << "seed " << seed;
            }
        };
        const std::size_t at = a.find(b), comma = a.find(','), end = a.find('\0');
        const auto place = [](std::size_t i) {
            return i == std::string::npos ? std::int64_t{-ENOENT} : static_cast<std::int64_t>(i);
        };
        same(place(at), [&](auto g) { return text::find(g, part_of(a), part_of(b)); });
        same(place(comma), [&](auto g) { return text::find_byte(g, part_of(a), ','); });
        same(end == std::string::npos ? static_cast<std::int64_t>(a.size()) : place(end),
             [&](auto g) { return text::length(g, a.data(), part_of(a).size); });
        same(sign(a.compare(b)),
             [&](auto g) { return std::int64_t{text::compare(g, part_of(a), part_of(b))}; });
        const std::string longer = a + "\xff";
        same(-1,
             [&](auto g) { return std::int64_t{text::compare(g, part_of(a), part_of(longer))}; });
    }
}

TEST(text, takes_apart_as_strtok_does) {
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        std::string plain = random_text(seed, 60);
        for (char& c : plain) c = c == '\0' ? ' ' : c;
        std::vector<std::string> wanted;
        std::string torn = plain;
        for (char* p = std::strtok(torn.data(), ", "); p != nullptr; p = std::strtok(nullptr, ", "))
            wanted.emplace_back(p);
        const auto call = [&](auto g) {
            std::vector<std::string> out;
            text::part rest = part_of(plain);
            for (text::part p = text::next_part(g, rest, {", ", 2}); p.bytes != nullptr;
                 p = text::next_part(g, rest, {", ", 2}))
                out.emplace_back(p.bytes, static_cast<std::size_t>(p.size));
            return out;
        };
        ASSERT_EQ(call(lane{}), wanted) << "seed " << seed;
        if (seed % 20 == 0) {
            ASSERT_EQ(by_all(call), wanted) << "seed " << seed;
        }
    }
    text::part rest{"ab", 2};
    EXPECT_EQ(text::next_part(lane{}, rest, {"", 0}).size, 2);  // without separators all is a piece
    EXPECT_EQ(text::next_part(lane{}, rest, {"", 0}).bytes, nullptr);
    rest = {nullptr, 5};
    EXPECT_EQ(text::next_part(lane{}, rest, {",", 1}).bytes, nullptr);
    rest = {"ab", -1};
    EXPECT_EQ(text::next_part(lane{}, rest, {",", 1}).bytes, nullptr);
}

TEST(text, formats_as_printf_does) {
    const auto check = [](std::int64_t value, bool wide) {
        char wanted[200];
        const int bytes =
            std::snprintf(wanted, sizeof wanted, "%s|%lld:%llu:%llx,%d,%u%c", "path/of a file",
                          static_cast<long long>(value), static_cast<unsigned long long>(value),
                          static_cast<unsigned long long>(value), static_cast<int>(value),
                          static_cast<unsigned>(static_cast<unsigned char>(value)), '\n');
        char got[200];
        const auto call = [&](auto g) {
            return text::format(g, got, sizeof got, "path/of a file", '|', value, ':',
                                static_cast<std::uint64_t>(value), ':',
                                text::hex{static_cast<std::uint64_t>(value)}, text::part{",...", 1},
                                static_cast<int>(value), ',', static_cast<unsigned char>(value),
                                '\n');
        };
        ASSERT_EQ(call(lane{}), bytes);
        ASSERT_STREQ(got, wanted);
        if (!wide) return;
        std::memset(got, 'x', sizeof got);
        ASSERT_EQ(by_all(call), bytes);
        ASSERT_STREQ(got, wanted);
    };
    for (const std::int64_t value :
         {INT64_MIN, INT64_MIN + 1, std::int64_t{-1}, std::int64_t{0}, std::int64_t{9},
          std::int64_t{10}, std::int64_t{99}, std::int64_t{100}, INT64_MAX})
        check(value, true);
    for (std::uint64_t seed = 1; seed < 2000; ++seed)
        check(static_cast<std::int64_t>(mix64(seed)) >> (seed % 64), false);
}

TEST(text, copies_and_appends_within_the_room) {
    for (std::int64_t room = 0; room < 12; ++room) {
        std::string to(16, 'x'), before = to;
        const auto call = [&](auto g) { return text::copy(g, to.data(), room, {"seven b", 7}); };
        const std::int64_t copied = by_all(call);
        if (room < 8) {
            EXPECT_EQ(copied, -ENOSPC);
            EXPECT_EQ(to, before);  // what fails leaves the bytes from before
            continue;
        }
        EXPECT_EQ(copied, 7);
        EXPECT_STREQ(to.c_str(), "seven b");
        EXPECT_EQ(to.substr(8), before.substr(8));
        before = to;
        const std::int64_t appended =
            by_all([&](auto g) { return text::append(g, to.data(), room, -12, '!'); });
        EXPECT_EQ(appended, room < 12 ? -ENOSPC : 11);
        EXPECT_EQ(to, before);
    }
    char twice[16] = "abc";
    EXPECT_EQ(text::append(lane{}, twice, sizeof twice, text::part{twice, 3}, 7), 7);
    EXPECT_STREQ(twice, "abcabc7");
    // By its end mark, which the call overwrites, it could not be measured twice.
    EXPECT_EQ(text::append(lane{}, twice, sizeof twice, "x", &twice[4]), -EINVAL);
    EXPECT_STREQ(twice, "abcabc7");
    const char no_end[4] = {'a', 'b', 'c', 'd'};
    char full[4];
    std::memcpy(full, no_end, 4);
    EXPECT_EQ(text::append(lane{}, full, 4, "x"), -EINVAL);
    EXPECT_EQ(text::append(lane{}, full, 0, "x"), -EINVAL);
    EXPECT_EQ(std::memcmp(full, no_end, 4), 0);
}

TEST(text, refuses_unsound_arguments) {
    char room[32] = "0123456789";
    EXPECT_EQ(text::copy(lane{}, room, 32, {room + 4, 3}), -EINVAL);
    EXPECT_EQ(text::copy(lane{}, room + 4, 8, {room, 5}), -EINVAL);
    EXPECT_EQ(text::append(lane{}, room, 32, text::part{room, 11}), -EINVAL);  // reads its end mark
    EXPECT_EQ(text::format(lane{}, nullptr, 5, "a"), -EINVAL);
    EXPECT_EQ(text::format(lane{}, nullptr, 0, "a"), -ENOSPC);
    EXPECT_EQ(text::format(lane{}, room, -1, "a"), -EINVAL);
    EXPECT_EQ(text::format(lane{}, room, 32, text::part{nullptr, 1}), -EINVAL);
    EXPECT_EQ(text::format(lane{}, room, 32, text::part{"a", -1}), -EINVAL);
    // Their sum would be beyond 64 bits; nothing of them is read.
    const text::part huge{room + sizeof room, INT64_MAX};
    EXPECT_EQ(text::format(lane{}, room, 9, huge, huge, "abc"), -ENOSPC);
    EXPECT_STREQ(room, "0123456789");
    EXPECT_EQ(text::format(lane{}, room, 1), 0);
    EXPECT_STREQ(room, "");
    const char* const none = nullptr;
    EXPECT_EQ(text::format(lane{}, room, 32, none, text::part{nullptr, 0}), 0);
    EXPECT_EQ(text::find(lane{}, {nullptr, 0}, {"", 0}), 0);
    EXPECT_EQ(text::find(lane{}, {nullptr, 0}, {"a", 1}), -ENOENT);
    EXPECT_EQ(text::find(lane{}, {nullptr, 1}, {"a", 1}), -EINVAL);
    EXPECT_EQ(text::find(lane{}, {"a", 1}, {"a", -1}), -EINVAL);
    EXPECT_EQ(text::find_byte(lane{}, {"a", -1}, 'a'), -EINVAL);
    EXPECT_EQ(text::length(lane{}, nullptr, 3), -EINVAL);
    EXPECT_EQ(text::length(lane{}, nullptr, 0), 0);
    EXPECT_EQ(text::compare(lane{}, {nullptr, 1}, {"", 0}), -EINVAL);
}

// By the C library: the same value and size, wherever that neither skips blanks nor wraps.
TEST(text, reads_numbers_as_strtoll_does) {
    std::vector<std::string> texts = {"",
                                      "-",
                                      "+",
                                      " 1",
                                      "a",
                                      "0",
                                      "-0",
                                      "+7",
                                      "--1",
                                      "+-1",
                                      "007",
                                      "12ab",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "-9223372036854775808",
                                      "-9223372036854775809",
                                      "18446744073709551615",
                                      "18446744073709551616",
                                      "99999999999999999999999999",
                                      "-1",
                                      "1\n2"};
    for (std::uint64_t seed = 1; seed < 2000; ++seed) {
        const std::uint64_t value = mix64(seed) >> (seed % 64);
        texts.push_back(seed % 2 != 0 ? std::to_string(value) : "-" + std::to_string(value) + "x");
    }
    const auto check = [](const std::string& t, auto unset, auto reference) {
        using number = decltype(unset);
        number got = unset;
        const std::int64_t bytes = text::read_number(lane{}, part_of(t), got);
        char* end = nullptr;
        errno = 0;
        const number wanted = reference(t.c_str(), &end);
        const bool begins = !t.empty() && t[0] != ' ' && end != t.c_str() &&
                            (std::is_signed_v<number> || t[0] != '-');
        const std::int64_t expected = !begins           ? -EINVAL
                                      : errno == ERANGE ? -ERANGE
                                                        : end - t.c_str();
        EXPECT_EQ(bytes, expected) << t;
        EXPECT_EQ(got, expected > 0 ? wanted : unset) << t;
    };
    for (const std::string& t : texts) {
        check(t, std::int64_t{-77},
              [](const char* s, char** end) { return std::strtoll(s, end, 10); });
        check(t, std::uint64_t{77},
              [](const char* s, char** end) { return std::strtoull(s, end, 10); });
    }
    std::int8_t small = 5;
    EXPECT_EQ(text::read_number(lane{}, {"-128", 4}, small), 4);
    EXPECT_EQ(small, -128);
    EXPECT_EQ(text::read_number(lane{}, {"128", 3}, small), -ERANGE);
    EXPECT_EQ(small, -128);
    std::uint8_t byte = 5;
    EXPECT_EQ(text::read_number(lane{}, {"255", 3}, byte), 3);
    EXPECT_EQ(byte, 255);
    EXPECT_EQ(text::read_number(lane{}, {"256", 3}, byte), -ERANGE);
    EXPECT_EQ(text::read_number(lane{}, {"12", 1}, byte), 1);  // no byte behind the size
    EXPECT_EQ(byte, 1);
    EXPECT_EQ(text::read_number(lane{}, {nullptr, 2}, byte), -EINVAL);
    EXPECT_EQ(by_all([](auto g) {
                  std::int32_t value = 0;
                  return text::read_number(g, {"2147483647;", 11}, value) == 10 ? value : -1;
              }),
              INT32_MAX);
}

}  // namespace
}  // namespace penstock::test
