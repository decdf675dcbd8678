// Objects in global variables, which end when other parts of a program have ended.
#include <cstdlib>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

// Ends after everything that a function made at its first call.
std::unique_ptr<runtime> ends_with_the_program;

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

}  // namespace penstock::test
