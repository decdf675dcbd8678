// Memory: a damaged length takes none, and where there is none, each call says so and leaves its
// result as it was. Every allocation of the program goes through the operators of this file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "table/support.hpp"

namespace {

// Of this thread alone: threads of the test's framework go on undisturbed.
thread_local bool is_counting = false;
thread_local std::uint64_t allocations = 0, first_failing = 0, last_failing = 0;
thread_local std::size_t largest_bytes = 0;

void* allocated(std::size_t bytes) {
    if (is_counting) {
        largest_bytes = std::max(largest_bytes, bytes);
        const std::uint64_t number = ++allocations;
        if (number >= first_failing && number <= last_failing) return nullptr;
    }
    return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (void* const memory = allocated(bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace penstock::test {

class scarce_memory : public table_folder {
protected:
    static constexpr std::uint64_t for_ever = ~std::uint64_t{0};

    // Allocations from `first` to `last` fail; 0: none.
    template <class Call>
    static status run(std::uint64_t first, std::uint64_t last, const Call& call) {
        allocations = largest_bytes = 0;
        first_failing = first;
        last_failing = last;
        is_counting = true;
        status ended;
        try {
            ended = call();
        } catch (...) {
            is_counting = false;
            throw;
        }
        is_counting = false;
        return ended;
    }

    // The n-th allocation fails, or all from it on, for every n.
    template <class Call>
    static void expect_survives(const Call& call) {
        const table_layout before = {.row_bytes = 7,
                                     .stride_bytes = 7,
                                     .dtype = "uint8",
                                     .row_shape = {7},
                                     .pieces = {{"as it was", 1, 2}}};
        table_layout out;
        // The first call also makes what the process has once.
        for (int i = 0; i < 2; ++i) ASSERT_TRUE(run(0, 0, [&] { return call(out); }));
        const table_layout right = out;
        const std::uint64_t count = allocations;
        ASSERT_GT(count, 3u);
        for (const std::uint64_t more : {std::uint64_t{0}, for_ever})
            for (std::uint64_t n = 1; n <= count; ++n) {
                out = before;
                const status s = run(n, more == 0 ? n : more, [&] { return call(out); });
                if (s.ok()) {
                    EXPECT_EQ(out, right) << n;
                } else {
                    EXPECT_EQ(s.code, -ENOMEM) << n << " " << s.message;
                    EXPECT_EQ(out, before) << n;
                }
                EXPECT_FALSE(s.ok() && more == for_ever) << n;
            }
    }
};

TEST_F(scarce_memory, no_allocation_that_fails_ends_the_program) {
    // All made here, where memory does not fail; names are too long to do without the heap.
    const std::string none, name = "embedding.of.tokens.shard_2",
                            second_name = "embedding.of.tokens.shard_10",
                            pattern = "embedding.of.tokens.shard_*";
    const std::string metadata = "\"__metadata__\":{\"format\":\"a text on the heap, not short\"},";
    const std::string npy = made("array.npy", npy_bytes(npy_text("<f4", "(3, 5, 2)"), 120));
    const std::string single =
        made("part-1.safetensors",
             safetensors_bytes("{" + metadata + entry_text(name, "U8", "[2,4]", 0, 8) + "}", 8));
    made("part-2.safetensors",
         safetensors_bytes("{" + entry_text(second_name, "U8", "[1,4]", 0, 4) + "}", 4));
    made("model.safetensors.index.json", "{\"metadata\":{\"list\":[1,[2,[3]]]},\"weight_map\":{\"" +
                                             second_name + "\":\"part-2.safetensors\",\"" + name +
                                             "\":\"part-1.safetensors\"}}");
    const raw_rows raw = {.row_bytes = 4};
    expect_survives([&](table_layout& out) { return describe_raw(npy, raw, out); });
    expect_survives([&](table_layout& out) { return describe(npy, none, out); });
    expect_survives([&](table_layout& out) { return describe_safetensors(single, name, out); });
    expect_survives([&](table_layout& out) { return describe(folder, pattern, out); });
}

// A length from a header is compared with the file before memory is taken for it.
TEST_F(scarce_memory, a_large_length_in_a_small_file_takes_none) {
    const std::string path = made("m.safetensors", little_endian(99'999'999, 8) + "{}");
    const std::string npy = made("a.npy", "\x93NUMPY" + std::string("\x02\0\xff\xff\xff\x05{}", 8));
    table_layout rows;
    const std::string name = "t";
    const status of_path = run(0, 0, [&] { return describe_safetensors(path, name, rows); });
    expect_refused(of_path, -EBADMSG, "claims a header of 99999999 bytes", rows);
    EXPECT_LT(largest_bytes, 10'000u);
    const status of_npy = run(0, 0, [&] { return describe_npy(npy, rows); });
    expect_refused(of_npy, -EBADMSG, "claims a header of 100663295 bytes", rows);
    EXPECT_LT(largest_bytes, 10'000u);
}

}  // namespace penstock::test
