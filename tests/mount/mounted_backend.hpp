// A source directory, served at a mount point by a runtime of this process, of either kind: what
// the tests of regions and kernels beside programs begin with.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "mount/mount.hpp"
#include "penstock/buffer.hpp"
#include "mount/program.hpp"
#include "region/support.hpp"

namespace penstock::test {

struct mounted_as {
    backend where = backend::cpu;
    bool buffered = false;

    mounted_as(backend of_runtime) : where(of_runtime) {}
    mounted_as(backend of_runtime, bool with_buffer) : where(of_runtime), buffered(with_buffer) {}
};
inline std::string name_of(const testing::TestParamInfo<mounted_as>& info) {
    return std::string(info.param.where == backend::gpu ? "gpu" : "cpu") +
           (info.param.buffered ? "_buffered" : "");
}

class mounted_backend : public testing::TestWithParam<mounted_as> {
protected:
    void SetUp() override {
        if (const status s = mount::can_mount(); !s) GTEST_SKIP() << s.message;
        if (where() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        for (const char* name : {"source", "point"})
            std::filesystem::create_directory(folder_ / name);
        runtime_ = make_runtime(region_runtime(folder_, where()));
        if (GetParam().buffered) {
            const status pooled = buffer_pool::make(small_buffer(), pool_);
            ASSERT_TRUE(pooled.ok()) << pooled.message;
        }
        const status s =
            mount_directory(*runtime_, folder_ / "source", folder_ / "point", settings(), mount_);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    [[nodiscard]] mount_options settings() const { return {.buffer = pool_.get()}; }
    void TearDown() override {
        if (mount_ == nullptr) return;
        EXPECT_EQ(mount_->unmount(), 0);
    }
    static backend where() { return GetParam().where; }
    // Pages that are larger than a region's, and so few that they come and go.
    static buffer_options small_buffer() {
        return {.where = where(),
                .host_bytes = 24 << 14,
                .device_bytes = 8 << 14,
                .page_bytes = 1 << 14,
                .sessions = 4,
                .fixed_pages = 1,
                .max_files = 8};
    }
    [[nodiscard]] std::string source() const { return folder_ / "source/f"; }
    [[nodiscard]] std::string seen_as() const { return folder_ / "point/f"; }

    program one_, two_;  // before there are threads
    const temporary_folder folder_;
    std::unique_ptr<runtime> runtime_;
    std::unique_ptr<buffer_pool> pool_;  // null: the mount has no buffer
    std::unique_ptr<file_mount> mount_;
};

}  // namespace penstock::test
