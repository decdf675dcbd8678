// What a service thread promises to an honest device, request by request, where the disk or the
// device goes wrong: retries, marks of refused loads, names, and the end of a file.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "fault/plain_environment.hpp"
#include "fuzz/ring_fuzz.hpp"
#include "fuzz/ring_harness.hpp"
#include "soon.hpp"

namespace penstock::fuzz {

namespace {

constexpr std::uint64_t stamp = std::uint64_t{1} << 60;
constexpr std::int64_t no_answer = -ETIMEDOUT;

std::int64_t result_of(ring_harness& ring, const ring_request& request) {
    const std::uint64_t ticket = ring.post(request);
    return ring.await(ticket) ? ring.reply(ticket).result : no_answer;
}

std::int64_t ping(ring_harness& ring) {
    ring_request request{};
    request.operation = op::ping;
    return result_of(ring, request);
}

// The next request has slot 0 of the ring.
void come_round(ring_harness& ring) {
    while (ring.next % ring_harness::slots != 0) ASSERT_EQ(ping(ring), 0);
}

ring_request fill_of(std::uint32_t slot, std::uint32_t generation, std::uint32_t bytes) {
    return engine::fill_request{slot, generation, bytes, 0, stamp}.packed();
}

std::int64_t fill(ring_harness& ring, const ring_request& request,
                  const std::vector<std::uint32_t>& frames) {
    std::memcpy(ring.staging(ring.next), frames.data(), frames.size() * sizeof frames[0]);
    return result_of(ring, request);
}

// Of each read as many bytes come as asked for, but only `step` at a time, and each time after
// `refusals` that say to try again.
class hesitant_files final : public fault::plain_files {
public:
    static constexpr std::uint64_t step = 200;
    static constexpr int refusals = host::most_attempts * 2 / 3;
    std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) override {
        if (++calls_ % (refusals + 1) != 0) return -EAGAIN;
        return real_.read(fd, to, std::min(bytes, step), offset);
    }
    std::unique_ptr<host::io_engine> make_io_engine(bool, std::uint32_t, std::string&) override {
        return host::make_pread_engine(*this);
    }

private:
    int calls_ = 0;
};

// A file "c" of three pages that was opened for writing, and its reads behind the first page.
class written_ring : public testing::Test {
protected:
    const std::string path = fuzz_root() + "/c";
    static constexpr std::uint32_t page = ring_harness::page_bytes, pages = 3;
    std::unique_ptr<ring_harness> ring;
    std::uint32_t slot = 0, generation = 0;

    void SetUp() override {
        std::ofstream(path, std::ios::binary | std::ios::trunc)
            << std::string(std::size_t{page} * pages, 'c');
        ring = std::make_unique<ring_harness>(fuzz_root(), fault::fault_plan{}, true);
        ASSERT_EQ(ring->open("c", slot, generation, engine::may_read_write), 0);
    }
    // The file's end is set as by another program.
    void cut_by_another(std::uint64_t bytes) { std::filesystem::resize_file(path, bytes); }
    std::int64_t truncate(std::uint64_t bytes) {
        return result_of(*ring,
                         engine::file_request{op::truncate, slot, generation, bytes}.packed());
    }
    std::int64_t read_second_page() {
        come_round(*ring);
        return result_of(*ring, engine::read_request{slot, generation, page, page, true}.packed());
    }
};

}  // namespace

// A read that storage has put off as often as a read is tried leaves nothing to the next one.
TEST(served_ring, each_read_is_tried_as_often_as_the_first) {
    ring_harness ring(fuzz_root());
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("a", slot, generation), 0);
    const ring_request read =
        engine::read_request{slot, generation, ring_harness::page_bytes, 0, false}.packed();
    come_round(ring);
    ring.disk.set({.calls = fault::call_read, .nth = 1, .for_ever = true, .error = -EAGAIN});
    EXPECT_EQ(result_of(ring, read), -EAGAIN);
    EXPECT_EQ(ring.disk.calls(), std::uint64_t{host::most_attempts});
    come_round(ring);
    ring.disk.set({.calls = fault::call_read, .nth = 1, .error = -EAGAIN});
    EXPECT_EQ(result_of(ring, read), ring_harness::page_bytes);
    EXPECT_EQ(ring.disk.calls(), 2u);
}

TEST(served_ring, loads_that_storage_puts_off_are_tried_again) {
    for (const int code : {-EINTR, -EAGAIN}) {
        ring_harness ring(fuzz_root());
        std::uint32_t slot = 0, generation = 0;
        ASSERT_EQ(ring.open("b", slot, generation), 0);
        ring.disk.set({.calls = fault::call_read, .nth = 1, .error = code});
        EXPECT_EQ(fill(ring, fill_of(slot, generation, 512), {5}), 0);
        EXPECT_EQ(ring.done_mark(5), stamp) << code;
        EXPECT_EQ(ring.disk.calls(), 2u);
        EXPECT_EQ(ring.service->counters().file_read_errors.load(), 0u);
    }
}

// What came meanwhile counts: only a load of which nothing comes for so long is given up.
TEST(served_ring, a_load_that_goes_on_is_tried_on) {
    hesitant_files storage;
    ring_harness ring(fuzz_root(), {}, false, storage);
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("b", slot, generation), 0);
    EXPECT_EQ(fill(ring, fill_of(slot, generation, 512), {5}), 0);
    EXPECT_EQ(ring.done_mark(5), stamp);
}

// A device that says itself that the load has failed is not believed.
TEST(served_ring, a_load_is_marked_by_what_came_of_it) {
    ring_harness ring(fuzz_root());
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("b", slot, generation), 0);
    const auto request =
        engine::fill_request{slot, generation, 512, 0, stamp | engine::fill_failed};
    EXPECT_EQ(fill(ring, request.packed(), {6}), 0);
    EXPECT_EQ(ring.done_mark(6), stamp);
}

// Groups may wait for the marks of its pages: those that are there all say that none comes.
TEST(served_ring, a_load_that_is_refused_says_so_to_those_that_wait) {
    ring_harness ring(fuzz_root());
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("a", slot, generation), 0);
    const std::uint32_t behind = ring_harness::tier_frames;
    EXPECT_EQ(fill(ring, fill_of(slot, generation, 1300), {3, behind, 4}), -EINVAL);
    EXPECT_EQ(ring.done_mark(3), stamp | engine::fill_failed);
    EXPECT_EQ(ring.done_mark(4), stamp | engine::fill_failed);
    EXPECT_EQ(fill(ring, fill_of(slot, generation + 1, 512), {7}), -EBADF);
    EXPECT_EQ(ring.done_mark(7), stamp | engine::fill_failed);
    EXPECT_EQ(fill(ring, fill_of(slot, generation, 1301), {8, 9, 10}), -EINVAL);
    for (const std::uint32_t frame : {8u, 9u, 10u})
        EXPECT_EQ(ring.done_mark(frame), stamp | engine::fill_failed);
    EXPECT_EQ(fill(ring, fill_of(slot, generation, 512), {behind - 1}), 0);
    EXPECT_EQ(ring.done_mark(behind - 1), stamp);
    EXPECT_TRUE(ring.service->alive());
}

TEST(served_ring, a_load_keeps_its_file_no_longer_than_it_runs) {
    ring_harness ring(fuzz_root());
    const int before = ring.disk.handles();
    std::uint32_t slot = 0, generation = 0;
    ASSERT_EQ(ring.open("b", slot, generation), 0);
    EXPECT_EQ(fill(ring, fill_of(slot, generation, 512), {5}), 0);
    EXPECT_GT(ring.disk.handles(), before);
    EXPECT_EQ(result_of(ring, engine::file_request{op::retire, slot, generation}.packed()), 0);
    EXPECT_TRUE(soon([&] { return ring.disk.handles() == before; }));
}

// A name ends where the request says. The file before the zero is none that was asked for.
TEST(served_ring, a_name_with_a_zero_in_it_is_none) {
    ring_harness ring(fuzz_root());
    std::uint32_t slot = 0, generation = 0;
    EXPECT_EQ(ring.open(std::string("a\0b", 3), slot, generation), -EINVAL);
    EXPECT_EQ(ring.open(std::string("a\0", 2), slot, generation), -EINVAL);
    EXPECT_EQ(ring.files->live_files(), 0u);
    EXPECT_EQ(ring.service->counters().bad_requests.load(), 2u);
}

// One alone, and as many as the ring has, of which the first is seen last.
TEST(served_ring, batches_are_counted_by_their_size) {
    ring_harness ring(fuzz_root());
    const host::service_counters& counted = ring.service->counters();
    const auto batches = [&] {  // in all buckets
        std::uint64_t sum = 0;
        for (const auto& bucket : counted.batch_size) sum += bucket.load();
        return sum;
    };
    ASSERT_EQ(ping(ring), 0);
    EXPECT_TRUE(soon([&] { return batches() == 1; })) << "a batch is counted after its answers";
    EXPECT_EQ(counted.batch_size[0].load(), 1u);
    const std::uint64_t first = ring.next;
    ring.next += ring_harness::slots;
    for (std::uint64_t ticket = ring.next; ticket-- > first;) {
        ring_request& request = ring.requests()[ticket % ring_harness::slots];
        request.operation = op::ping;
        atomic_store<order::release, scope::system>(&request.published, ticket + 1);
    }
    for (std::uint64_t ticket = first; ticket < ring.next; ++ticket)
        ASSERT_TRUE(ring.await(ticket));
    EXPECT_TRUE(soon([&] { return batches() == 2; }));
    EXPECT_EQ(counted.batch_size[3].load(), 1u) << "8 to 15";
    EXPECT_EQ(counted.batches.load(), 2u);
}

// Both are seen at once.
TEST_F(written_ring, a_write_of_another_life_is_refused_beside_one_of_this) {
    const std::uint64_t first = ring->next;
    for (const std::uint64_t i : {1, 0}) {  // the first is the last to be published
        ring_request& place = ring->requests()[(first + i) % ring_harness::slots];
        const std::uint64_t published = place.published;
        place = engine::write_request{slot, generation + static_cast<std::uint32_t>(i), page,
                                      i * page, 1}
                    .packed();
        place.published = published;
        std::memset(ring->staging(first + i), 'w', page);
        atomic_store<order::release, scope::system>(&place.published, first + i + 1);
    }
    ring->next += 2;
    ASSERT_TRUE(ring->await(first) && ring->await(first + 1));
    EXPECT_EQ(ring->reply(first).result, 0);
    EXPECT_LT(ring->reply(first + 1).result, 0);
    std::ifstream in(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(all, std::string(page, 'w') + std::string(std::size_t{page} * 2, 'c'));
}

TEST_F(written_ring, cuts_that_storage_puts_off_are_tried_again) {
    for (const int code : {-EINTR, -EAGAIN}) {
        ring->disk.set({.calls = fault::call_truncate, .nth = 1, .error = code});
        EXPECT_EQ(truncate(code == -EINTR ? 2 * page : page), 0) << code;
        EXPECT_EQ(ring->disk.calls(), 2u);
    }
    EXPECT_EQ(std::filesystem::file_size(path), page);
}

// The bytes were in the file, and this runtime did not cut it. So they are missing, and no zeros.
TEST_F(written_ring, bytes_that_another_program_cut_off_are_no_zeros_after_a_cut_that_failed) {
    ring->disk.set({.calls = fault::call_truncate, .nth = 1, .error = -EIO});
    EXPECT_EQ(truncate(0), -EIO);
    EXPECT_EQ(std::filesystem::file_size(path), std::uint64_t{page} * pages);
    cut_by_another(page);
    EXPECT_EQ(read_second_page(), 0);
    EXPECT_EQ(truncate(0), 0);
    EXPECT_EQ(read_second_page(), page) << "now this runtime has cut them off";
}

// A read that met the end beside a write looks once more, whatever its slot served before.
TEST_F(written_ring, each_read_that_is_the_first_to_meet_the_end_looks_again) {
    cut_by_another(page);
    EXPECT_EQ(read_second_page(), 0);
    cut_by_another(std::uint64_t{page} * pages);
    for (int i = 0; i < 2; ++i) {
        ring->disk.set({.calls = fault::call_read, .nth = 1, .error = 0});
        EXPECT_EQ(read_second_page(), page);
        EXPECT_EQ(ring->disk.calls(), 2u);
    }
}

}  // namespace penstock::fuzz
