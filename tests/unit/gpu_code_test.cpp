// For which GPUs a build has code, by the list of architectures that it was made for.
#include "device/gpu_code.hpp"

#include <gtest/gtest.h>

namespace penstock::test {

using host::code_for;
using host::gpu_code;

TEST(gpu_code, machine_code_runs_within_its_major_number) {
    EXPECT_EQ(code_for("80-real", 80), gpu_code::machine);
    EXPECT_EQ(code_for("80-real", 86), gpu_code::machine);
    EXPECT_EQ(code_for("86-real", 80), gpu_code::none);
    EXPECT_EQ(code_for("80-real", 90), gpu_code::none);
    EXPECT_EQ(code_for("100-real", 103), gpu_code::machine);
    EXPECT_EQ(code_for("100-real", 120), gpu_code::none);
}

TEST(gpu_code, intermediate_code_serves_all_later_gpus) {
    EXPECT_EQ(code_for("75-virtual,90-real", 75), gpu_code::intermediate);
    EXPECT_EQ(code_for("75-virtual,90-real", 89), gpu_code::intermediate);
    EXPECT_EQ(code_for("75-virtual,90-real", 90), gpu_code::machine);
    EXPECT_EQ(code_for("90-real,75-virtual", 120), gpu_code::intermediate);
    EXPECT_EQ(code_for("75-virtual,90-real", 61), gpu_code::none);
}

TEST(gpu_code, an_entry_of_no_kind_has_both) {
    EXPECT_EQ(code_for("80", 86), gpu_code::machine);
    EXPECT_EQ(code_for("80", 90), gpu_code::intermediate);
    EXPECT_EQ(code_for("80", 75), gpu_code::none);
}

TEST(gpu_code, suffixes_narrow_it) {
    EXPECT_EQ(code_for("90a", 90), gpu_code::machine);
    EXPECT_EQ(code_for("90a-virtual", 100), gpu_code::none);
    EXPECT_EQ(code_for("100a-real", 103), gpu_code::none);
    EXPECT_EQ(code_for("100f-real", 103), gpu_code::machine);
    EXPECT_EQ(code_for("100f-virtual", 103), gpu_code::intermediate);
    EXPECT_EQ(code_for("100f-virtual", 120), gpu_code::none);
}

TEST(gpu_code, lists_that_name_no_architecture_are_unknown) {
    for (const char* const list :
         {"", "native", "all-major", "OFF", "90-real,all", "90-reel", "90x"})
        EXPECT_EQ(code_for(list, 80), gpu_code::unknown) << list;
}

}  // namespace penstock::test
