// Reads that meet the end of a file before they have all bytes, with the device played by hand:
// what of them counts as read, and when the rest counts as zeros.
#include <cstring>
#include <functional>

#include "fuzz/ring_harness.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using fuzz::ring_harness;

// Each read asks whether the file ends before its first byte.
class ending_files final : public fault::faulty_environment {
public:
    std::function<bool()> ends = [] { return false; };

    std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) override {
        return ends() ? 0 : faulty_environment::read(fd, to, bytes, offset);
    }
    std::unique_ptr<host::io_engine> make_io_engine(bool, std::uint32_t, std::string&) override {
        return host::make_pread_engine(*this);
    }
};

class short_reads : public testing::Test {
protected:
    static constexpr std::uint32_t small_page = ring_harness::page_bytes, pages = 4;

    short_reads() {
        write_file(folder / "data", bytes);
        EXPECT_EQ(ring.open("data", slot, generation, engine::may_read_write), 0);
        EXPECT_EQ(ring.files->writer_of(slot, generation, writer), 0);
    }
    // The service's answer to a read of a page: how many bytes, and whether that is the whole page.
    std::pair<std::int64_t, bool> read_page(std::uint64_t number) {
        const std::uint64_t ticket = ring.post(
            engine::read_request{slot, generation, small_page, number * small_page, true}.packed());
        EXPECT_TRUE(ring.await(ticket));
        last = ring.staging(ticket);
        return {ring.reply(ticket).result, (ring.reply(ticket).completed & engine::whole_bit) != 0};
    }
    [[nodiscard]] bool last_is(std::uint64_t number) const {
        return std::memcmp(last, &bytes[number * small_page], small_page) == 0;
    }

    temporary_folder folder;
    const std::vector<std::uint8_t> bytes = pattern(1, std::uint64_t{pages} * small_page);
    ending_files disk;  // outlives what runs on it
    ring_harness ring{folder.path(), {}, true, disk};
    std::uint32_t slot = 0, generation = 0;
    std::shared_ptr<host::file_writer> writer;
    const std::byte* last = nullptr;
};

}  // namespace

// The read may have been begun before the file had the bytes, so it is made once more. If it ends
// again, another program cut the file, and the page is told as short.
TEST_F(short_reads, what_the_file_had_is_read_once_more_and_never_taken_for_zeros) {
    for (std::uint64_t number = 0; number < pages; ++number) {
        int reads = 0;
        disk.ends = [&] { return ++reads == 1; };
        EXPECT_EQ(read_page(number), std::pair(std::int64_t{small_page}, true)) << number;
        EXPECT_TRUE(last_is(number)) << number;
        EXPECT_EQ(reads, 2);
        reads = 0;
        disk.ends = [&] { return ++reads != 0; };
        EXPECT_EQ(read_page(number), std::pair(std::int64_t{0}, false)) << number;
        EXPECT_EQ(reads, 2);
    }
}

// Beside each of the first reads this runtime cuts the file and writes it anew.
TEST_F(short_reads, a_read_beside_cuts_of_this_runtime_is_made_until_there_is_none) {
    for (std::uint64_t number = 0; number < pages; ++number) {
        int reads = 0;
        disk.ends = [&] {
            if (++reads == 5) return false;
            writer->begin_cut();
            writer->end_cut(UINT64_MAX);
            return true;
        };
        EXPECT_EQ(read_page(number), std::pair(std::int64_t{small_page}, true)) << number;
        EXPECT_TRUE(last_is(number)) << number;
        EXPECT_EQ(reads, 5);
    }
}

TEST_F(short_reads, what_the_file_never_had_reads_as_zeros) {
    disk.ends = [] { return true; };
    writer->begin_cut();
    writer->end_cut(2 * small_page);
    EXPECT_EQ(read_page(1), std::pair(std::int64_t{0}, false)) << "it had that";
    for (const std::uint64_t number : {2, 3}) {
        EXPECT_EQ(read_page(number), std::pair(std::int64_t{small_page}, true)) << number;
        for (std::uint32_t i = 0; i < small_page; ++i) ASSERT_EQ(last[i], std::byte{0}) << i;
    }
    writer->begin_cut();
    EXPECT_EQ(read_page(1), std::pair(std::int64_t{small_page}, true)) << "a cut is under way";
    writer->end_cut(UINT64_MAX);
    EXPECT_EQ(read_page(1), std::pair(std::int64_t{0}, false));
}

// Pages of the host tier that are read together: the file has all but a byte of the second.
TEST_F(short_reads, of_the_tier_a_page_counts_that_is_there_to_its_last_byte) {
    for (const std::uint32_t left :
         {0u, 1u, small_page - 1, small_page, 2 * small_page - 1, 2 * small_page, 3 * small_page}) {
        write_file(folder / "data", bytes);
        std::filesystem::resize_file(folder / "data", left);
        const std::uint32_t frames[] = {4, 5, 6};
        const std::uint64_t stamp = 1000 + 2 * left;
        std::memcpy(ring.staging(ring.next), frames, sizeof frames);
        const std::uint64_t ticket =
            ring.post(engine::fill_request{slot, generation, 3 * small_page, 0, stamp}.packed());
        ASSERT_TRUE(ring.await(ticket));
        EXPECT_EQ(ring.reply(ticket).result, 0);
        for (std::uint32_t i = 0; i < 3; ++i) {
            const bool is_there = left >= (i + 1) * small_page;
            EXPECT_EQ(ring.done_mark(frames[i]), stamp | (is_there ? 0 : engine::fill_failed))
                << left << " bytes, page " << i;
            if (is_there) {
                EXPECT_EQ(
                    std::memcmp(ring.tier_frame(frames[i]), &bytes[i * small_page], small_page), 0);
            }
        }
    }
}

}  // namespace penstock::test
