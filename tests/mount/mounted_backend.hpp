// A source directory, served at a mount point by a runtime of this process, of either kind: what
// the tests of regions and kernels beside programs begin with.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "mount/mount.hpp"
#include "mount/program.hpp"
#include "region/support.hpp"

namespace penstock::test {

class mounted_backend : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (const status s = mount::can_mount(); !s) GTEST_SKIP() << s.message;
        if (where() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        for (const char* name : {"source", "point"})
            std::filesystem::create_directory(folder_ / name);
        runtime_ = make_runtime(region_runtime(folder_, where()));
        const status s =
            mount_directory(*runtime_, folder_ / "source", folder_ / "point", {}, mount_);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    void TearDown() override {
        if (mount_ == nullptr) return;
        EXPECT_EQ(mount_->unmount(), 0);
    }
    static backend where() { return GetParam(); }
    [[nodiscard]] std::string source() const { return folder_ / "source/f"; }
    [[nodiscard]] std::string seen_as() const { return folder_ / "point/f"; }

    program one_, two_;  // before there are threads
    const temporary_folder folder_;
    std::unique_ptr<runtime> runtime_;
    std::unique_ptr<file_mount> mount_;
};

}  // namespace penstock::test
