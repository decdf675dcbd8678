// Objects in global variables, which end when other parts of a program have ended.
#include <malloc.h>

#include <cstdlib>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

// Ends after everything that a function made at its first call.
std::unique_ptr<runtime> ends_with_the_program;
std::unique_ptr<file_region> region_of_the_program;

// So many in each page that all of the page is written.
void change_every_page(std::uint64_t pages, std::uint8_t byte) {
    auto* const data = static_cast<std::uint8_t*>(region_of_the_program->data());
    for (std::uint64_t at = 0; at < pages * page; at += 100) data[at] = byte;
}

}  // namespace

TEST(program_end, a_runtime_may_be_in_a_global_variable) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(9, 10000));
    EXPECT_EXIT(
        {
            options o = small_options(folder, 1);
            o.writable = true;
            ends_with_the_program = make_runtime(o);
            const int fd = ends_with_the_program->open("data", open_read_write);
            const std::uint8_t byte = 5;
            ends_with_the_program->write(fd, &byte, 1, 7000);
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_EQ(bytes_on_disk(folder / "data")[7000], 5);
}

TEST(program_end, a_region_may_be_in_a_global_variable) {
    constexpr std::uint64_t pages = 64;
    const temporary_folder folder;
    write_file(folder / "data", pattern(10, pages * page));
    EXPECT_EXIT(
        {
            ::mallopt(M_MMAP_THRESHOLD, 65536);  // what is freed is gone
            options o = small_options(folder, 1);
            o.writable = true;
            ends_with_the_program = make_runtime(o);
            region_options of_region;
            of_region.outside_writers = false;
            const status s = map_region(*ends_with_the_program, folder / "data", 0, 0,
                                        protection::read_write, of_region, region_of_the_program);
            EXPECT_TRUE(s.ok()) << s.message;
            change_every_page(pages, 1);
            EXPECT_GE(region_of_the_program->release(), 0);
            change_every_page(pages, 2);
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
    const std::vector<std::uint8_t> now = bytes_on_disk(folder / "data");
    for (std::uint64_t at = 0; at < pages * page; ++at)
        ASSERT_EQ(now[at], at % 100 == 0 ? 2 : pattern_byte(10, at)) << at;
}

}  // namespace penstock::test
