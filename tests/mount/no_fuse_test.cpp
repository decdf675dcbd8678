// The message of a build without libfuse: the cause and the cure. Compiled from the sources of that
// build.
#include <gtest/gtest.h>

#include "mount/mount.hpp"
#include "penstock/runtime.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

void expect_cure(const status& s) {
    EXPECT_EQ(s.code, -ENOSYS) << s.message;
    for (const char* const part : {"without libfuse", "libfuse3-dev", "fuse3", "build again"})
        EXPECT_NE(s.message.find(part), std::string::npos) << part << " is not in: " << s.message;
}

}  // namespace

TEST(a_build_without_libfuse, names_the_packages) {
    expect_cure(mount::can_mount());
    mount::serve_report done;
    expect_cure(mount::serve({}, {}, done));
}

TEST(a_build_without_libfuse, refuses_to_mount_in_a_process_and_leaves_it_whole) {
    const temporary_folder folder;
    for (const char* name : {"source", "point"}) std::filesystem::create_directory(folder / name);
    const auto rt = make_runtime(region_runtime(folder, backend::cpu));
    std::unique_ptr<file_mount> out;
    expect_cure(mount_directory(*rt, folder / "source", folder / "point", {}, out));
    EXPECT_EQ(out, nullptr);
    const status absent = mount_directory(*rt, folder / "absent", folder / "point", {}, out);
    EXPECT_EQ(absent.code, -ENOENT);
    EXPECT_NE(absent.message.find("absent"), std::string::npos) << absent.message;
    write_file(folder / "source/f", pattern(1, 100));
    const int fd = rt->open(folder / "source/f");
    EXPECT_GE(fd, 0);
    EXPECT_EQ(rt->close(fd), 0);
}

}  // namespace penstock::test
