// Attacks on the ring that a fuzzer would have to be lucky to find, one a test.
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "fuzz/ring_fuzz.hpp"
#include "fuzz/ring_harness.hpp"
#include "penstock/engine/wish.hpp"
#include "soon.hpp"

namespace penstock::fuzz {

namespace {

ring_request read_of(std::uint32_t slot, std::uint32_t generation, std::uint64_t offset,
                     std::uint32_t bytes) {
    ring_request request{};
    request.operation = op::read;
    request.file_slot = slot;
    request.generation = generation;
    request.offset = offset;
    request.bytes = bytes;
    return request;
}

ring_request ping() {
    ring_request request{};
    request.operation = op::ping;
    return request;
}

void await_stalled(const ring_harness& ring, int count) {
    ASSERT_TRUE(soon([&] { return ring.disk.stalled() >= count; }));
}

}  // namespace

// A second request is published in a slot whose read is still under way. Mixing up the two would
// read into the slot by the wrong length, or go on with a read whose file is closed.
TEST(hostile_ring, a_slot_is_used_again_while_its_read_is_under_way) {
    fault::fault_plan plan;
    plan.longest_read = 100;
    for (int round = 0; round < 20; ++round) {
        ring_harness ring(fuzz_root(), plan);
        std::uint32_t slot = 0, generation = 0;
        ASSERT_EQ(ring.open("a", slot, generation), 0);
        ring.restore_guards();
        ring.disk.stall(fault::call_read);
        const std::uint64_t first = ring.post(read_of(slot, generation, 0, 512));
        await_stalled(ring, 1);
        for (std::uint32_t i = 1; i < ring_harness::slots; ++i) ring.post({});
        // Only now the slots have come round; the service sees a second read for the first slot.
        const std::uint64_t second =
            ring.post(read_of(slot, generation, 512, static_cast<std::uint32_t>(1 + round * 25)));
        ASSERT_TRUE(ring.await(second)) << "refused at once, while the first is under way";
        EXPECT_LT(ring.reply(second).result, 0);
        ring.disk.release();
        ASSERT_TRUE(ring.await(first));
        EXPECT_EQ(ring.reply(first).result, 512);
        EXPECT_TRUE(ring.guards_hold(first, 512));
        EXPECT_TRUE(ring.service->alive());
        const std::uint64_t third = ring.post(ping());
        EXPECT_TRUE(ring.await(third));
    }
}

TEST(hostile_ring, a_file_taken_down_under_a_read_stays_open_for_it) {
    ring_harness ring(fuzz_root());
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("a", slot, generation), 0);
    ring.disk.stall(fault::call_read);
    const std::uint64_t first = ring.post(read_of(slot, generation, 512, 512));
    await_stalled(ring, 1);
    ring_request retire{};
    retire.operation = op::retire;
    retire.file_slot = slot;
    retire.generation = generation;
    const std::uint64_t second = ring.post(retire);
    ASSERT_TRUE(ring.await(second));
    EXPECT_EQ(ring.reply(second).result, 0);
    ring.disk.release();
    ASSERT_TRUE(ring.await(first));
    EXPECT_EQ(ring.reply(first).result, 512);
    EXPECT_EQ(static_cast<std::uint8_t>(ring.staging(first)[0]),
              static_cast<std::uint8_t>(512 * 7 + 'a'));
    const std::uint64_t third = ring.post(read_of(slot, generation, 0, 512));
    ASSERT_TRUE(ring.await(third));
    EXPECT_EQ(ring.reply(third).result, -EBADF);
    const std::uint64_t fourth = ring.post(retire);
    ASSERT_TRUE(ring.await(fourth));
    EXPECT_EQ(ring.reply(fourth).result, -EBADF);
}

TEST(hostile_ring, reads_that_are_not_pages_are_refused) {
    ring_harness ring(fuzz_root());
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("a", slot, generation), 0);
    ring.restore_guards();
    const ring_request wrong[] = {
        read_of(slot, generation, 0, 0),          read_of(slot, generation, 0, 513),
        read_of(slot, generation, 1, 16),         read_of(slot, generation, 1024, 277),
        read_of(slot, generation, 1536, 1),       read_of(slot, generation, 0, 0xffffffff),
        read_of(slot, generation, ~0ull << 9, 1), read_of(slot, generation, 512ull << 40, 1)};
    for (const ring_request& request : wrong) {
        const std::uint64_t ticket = ring.post(request);
        ASSERT_TRUE(ring.await(ticket));
        EXPECT_EQ(ring.reply(ticket).result, -EINVAL) << request.offset << " " << request.bytes;
        EXPECT_TRUE(ring.guards_hold(ticket, 0));
    }
    for (const ring_request& request :
         {read_of(slot, generation + 1, 0, 1), read_of(slot + 1, generation, 0, 1),
          read_of(0xffffffff, generation, 0, 1)}) {
        const std::uint64_t ticket = ring.post(request);
        ASSERT_TRUE(ring.await(ticket));
        EXPECT_EQ(ring.reply(ticket).result, -EBADF);
    }
    EXPECT_EQ(ring.service->counters().bad_requests.load(), std::size(wrong) + 3);
    const std::uint64_t last = ring.post(read_of(slot, generation, 1024, 276));
    ASSERT_TRUE(ring.await(last));
    EXPECT_EQ(ring.reply(last).result, 276);
}

// The longest name ends where the slot's area ends; one byte more is refused. The area of the last
// slot ends at memory that may not be touched.
TEST(hostile_ring, names_stay_inside_their_slot) {
    ring_harness ring(fuzz_root());
    for (std::uint32_t i = 0; i < ring_harness::slots; ++i) {
        for (const std::uint32_t bytes : {4095u, 4096u, 0u, 0x80000000u, 0xffffffffu}) {
            while (ring.next % ring_harness::slots != i) ASSERT_TRUE(ring.await(ring.post(ping())));
            std::memset(ring.staging(ring.next), 'x', ring_harness::stride);
            ring_request request{};
            request.operation = op::open;
            request.bytes = bytes;
            const std::uint64_t ticket = ring.post(request);
            ASSERT_TRUE(ring.await(ticket));
            EXPECT_EQ(ring.reply(ticket).result, bytes == 4095 ? -ENAMETOOLONG : -EINVAL) << bytes;
        }
    }
}

// A file that was not opened for writing is not written; one that was, only by whole pages, as
// marked.
TEST(hostile_ring, writes_that_are_not_permitted_are_refused) {
    const auto text_of = [](const char* name) {
        std::ifstream in(fuzz_root() + "/" + name, std::ios::binary);
        return std::string((std::istreambuf_iterator<char>(in)), {});
    };
    const std::string before = text_of("a");
    std::ofstream(fuzz_root() + "/c", std::ios::binary | std::ios::trunc) << "old";
    ring_harness ring(fuzz_root(), {}, true);
    std::uint32_t a = 0, of_a = 0, c = 0, of_c = 0;
    ASSERT_EQ(ring.open("a", a, of_a), 0);
    ASSERT_EQ(ring.open("c", c, of_c, engine::may_read_write), 0);
    const auto result_of = [&](op operation, std::uint32_t slot, std::uint32_t generation,
                               std::uint64_t offset, std::uint32_t bytes, std::uint64_t argument) {
        ring_request request{};
        request.operation = operation;
        request.file_slot = slot;
        request.generation = generation;
        request.offset = offset;
        request.bytes = bytes;
        request.argument = argument;
        const std::uint64_t ticket = ring.post(request);
        return ring.await(ticket) ? ring.reply(ticket).result : std::int64_t{-ETIMEDOUT};
    };
    for (const op operation : {op::write, op::sync, op::truncate}) {
        // A sync brings what others wrote to storage too, so any open file may have one.
        EXPECT_EQ(result_of(operation, a, of_a, 0, 512, 1), operation == op::sync ? 0 : -EBADF);
        EXPECT_EQ(result_of(operation, c, of_c + 1, 0, 512, 1), -EBADF);
        EXPECT_EQ(result_of(operation, 0xffffffff, of_c, 0, 512, 1), -EBADF);
    }
    EXPECT_EQ(result_of(op::write, c, of_c, 0, 511, 1), -EINVAL);
    EXPECT_EQ(result_of(op::write, c, of_c, 0, 0, 1), -EINVAL);
    EXPECT_EQ(result_of(op::write, c, of_c, 0, 0xfffffe00, 1), -EINVAL);
    EXPECT_EQ(result_of(op::write, c, of_c, 1, 512, 1), -EINVAL);
    EXPECT_EQ(result_of(op::write, c, of_c, ~0ull << 9, 512, 1), -EINVAL);
    EXPECT_EQ(result_of(op::write, c, of_c, 1ull << 63, 512, 1), -EINVAL);
    EXPECT_EQ(result_of(op::write, c, of_c, INT64_MAX & ~511ull, 512, 1), -EINVAL);
    EXPECT_EQ(result_of(op::truncate, c, of_c, 1ull << 63, 0, 0), -EINVAL);
    EXPECT_LT(result_of(op::truncate, c, of_c, INT64_MAX, 0, 0), 0);
    EXPECT_EQ(text_of("c"), "old");
    EXPECT_EQ(text_of("a"), before);
    // No mark, no byte; two marks, two bytes.
    std::memset(ring.staging(ring.next), 0, ring_harness::stride);
    EXPECT_EQ(result_of(op::write, c, of_c, 0, 512, 0), 0);
    EXPECT_EQ(text_of("c"), "old");
    std::memset(ring.staging(ring.next), 'x', 512);
    std::memset(ring.staging(ring.next) + 512, 0, 64);
    ring.staging(ring.next)[512] = std::byte{0b1010};
    EXPECT_EQ(result_of(op::write, c, of_c, 0, 512, 0), 0);
    EXPECT_EQ(text_of("c"), "oxdx");
    // Settled: it is not ours to write any more.
    const std::uint64_t epoch = 1;
    EXPECT_EQ(result_of(op::settle, c, of_c, 0, 0, epoch), 0);
    EXPECT_EQ(result_of(op::write, c, of_c, 0, 512, 1), -EBADF);
    EXPECT_EQ(text_of("c"), "oxdx");
}

// Of a list only what is part of an open file is asked for.
TEST(hostile_ring, wishes_for_what_is_no_part_of_an_open_file_are_passed_over) {
    ring_harness ring(fuzz_root());
    ring.disk.say_cached(0);
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("a", slot, generation), 0);
    const auto result_of = [&](std::uint32_t runs) {
        ring_request request{};
        request.operation = op::wish;
        request.bytes = runs;
        const std::uint64_t ticket = ring.post(request);
        return ring.await(ticket) ? ring.reply(ticket).result : std::int64_t{-ETIMEDOUT};
    };
    EXPECT_EQ(result_of(0), -EINVAL);
    EXPECT_EQ(result_of(engine::max_wished_runs + 1), -EINVAL);
    EXPECT_EQ(result_of(0xffffffff), -EINVAL);
    ring.disk.set({.calls = fault::call_will_need});
    const engine::wished_run list[] = {{slot, generation + 1, engine::make_run(0, 1)},
                                       {0xffffffff, generation, engine::make_run(0, 1)},
                                       {slot, generation, engine::make_run(8, 1)},
                                       {slot, generation, engine::make_run(0, 0)},
                                       {slot, generation, ~std::uint64_t{0}},
                                       {slot, generation, engine::make_run(2, 60000)}};
    std::memcpy(ring.staging(ring.next), list, sizeof list);
    EXPECT_EQ(result_of(std::size(list)), 0);
    std::memset(ring.staging(ring.next), 0xff, ring_harness::stride);
    EXPECT_EQ(result_of(engine::max_wished_runs), 0);
    EXPECT_TRUE(soon([&] { return ring.disk.calls() != 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(ring.disk.calls(), 1u);
    EXPECT_EQ(ring.service->counters().wishes.load(), 1u);
    EXPECT_TRUE(ring.service->alive());
}

TEST(hostile_ring, extents_that_were_never_given_are_not_taken_back) {
    ring_harness ring(fuzz_root());
    for (const std::uint64_t extent :
         {std::uint64_t{1}, std::uint64_t{200}, std::uint64_t{257}, ~std::uint64_t{0}}) {
        for (const std::uint64_t units :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{300}, ~std::uint64_t{0}}) {
            std::memcpy(ring.staging(ring.next), "a", 1);
            ring_request request{};
            request.operation = op::open;
            request.bytes = 1;
            request.offset = extent;
            request.argument = units;
            request.lost_extent = units << 32 | (extent & 0xffffffff);
            const std::uint64_t ticket = ring.post(request);
            ASSERT_TRUE(ring.await(ticket));
            EXPECT_EQ(ring.reply(ticket).result, 0);
            const auto granted =
                static_cast<std::uint32_t>(ring.reply(ticket).words[engine::reply_path_and_flags]);
            EXPECT_LE(granted, 256u);
        }
    }
    EXPECT_EQ(ring.files->live_files(), 1u);
}

}  // namespace penstock::fuzz
