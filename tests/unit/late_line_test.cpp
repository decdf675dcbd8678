// Lines that are said only if a wait is long.
#include "runtime/late_line.hpp"

#include <gtest/gtest.h>

#include <future>

namespace penstock::test {

using host::late_line;

TEST(late_line, a_long_wait_is_said_once) {
    std::promise<std::string> said;
    const late_line waiting("the driver translates", std::chrono::milliseconds(0),
                            [&](const std::string& line) { said.set_value(line); });
    EXPECT_EQ(said.get_future().get(), "the driver translates");
}

TEST(late_line, a_short_wait_is_not_said) {
    bool said = false;
    // Its end does not wait for the hour.
    {
        const late_line waiting("a line", std::chrono::hours(1),
                                [&](const std::string&) { said = true; });
    }
    EXPECT_FALSE(said);
}

TEST(late_line, an_empty_line_is_not_said) {
    bool said = false;
    {
        const late_line none("", std::chrono::milliseconds(0),
                             [&](const std::string&) { said = true; });
    }
    EXPECT_FALSE(said);
}

}  // namespace penstock::test
