// A mount whose point belongs to another file system by now, or has another name: that one stays as
// it is, and stores of programs come home all the same.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "mount/mounted_backend.hpp"
#include "os/shared_memory.hpp"

namespace penstock::test {

namespace {

class mounted_places : public mounted_backend {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "only root mounts other file systems";
        mounted_backend::SetUp();
    }
    [[nodiscard]] std::string point() const { return folder_ / "point"; }
    static std::string type_at(const std::string& path) { return mount::mounted_at(path).type; }
    static int detach(const std::string& path) { return ::umount2(path.c_str(), MNT_DETACH); }
    static bool cover(const std::string& path) {
        return ::mount("none", path.c_str(), "tmpfs", 0, nullptr) == 0;
    }

    // A program has the file mapped, and stores 1 to 4, each of which the region must have; `move`
    // is called after the second. Leaves the program's file open, with a store that no region has.
    template <class Move>
    void store_and_see(const Move& move) {
        write_file(source(), std::vector<std::uint8_t>(8192));
        const auto r = map_whole(*runtime_, source(), protection::read, {.outside_writers = false});
        ASSERT_GE(one_.open(seen_as()), 0);
        ASSERT_EQ(one_.map(8192), 0);
        for (std::uint8_t value = 1; value <= 4; ++value) {
            if (value == 3) move();
            EXPECT_EQ(one_.store(64, value), 0);
            EXPECT_GE(r->acquire(), 0);
            EXPECT_EQ(peek(*r, where(), 64, 1)[0], value);
        }
        EXPECT_EQ(one_.store(64, 5), 0);
    }
};

}  // namespace

TEST_P(mounted_places, stores_are_seen_while_another_mount_of_the_source_has_the_point) {
    std::unique_ptr<file_mount> second;
    store_and_see([&] {
        ASSERT_EQ(detach(point()), 0);
        const status s =
            mount_directory(*runtime_, folder_ / "source", point(), settings(), second);
        ASSERT_TRUE(s.ok()) << s.message;
    });
    EXPECT_TRUE(mount_->is_mounted()) << "a program has a file of it";
    static_cast<void>(mount_->unmount());
    EXPECT_EQ(read_file(source())[64], 5);
    ASSERT_NE(second, nullptr);
    EXPECT_TRUE(second->is_mounted());
    EXPECT_EQ(type_at(point()), "fuse.penstock");
    EXPECT_EQ(read_file(seen_as())[64], 5);
    static_cast<void>(one_.close_file());
    EXPECT_EQ(second->unmount(), 0);
    EXPECT_EQ(type_at(point()), "");
}

TEST_P(mounted_places, stores_are_seen_while_the_source_itself_lies_over_the_point) {
    store_and_see([&] {
        ASSERT_EQ(::mount((folder_ / "source").c_str(), point().c_str(), nullptr, MS_BIND, nullptr),
                  0);
    });
    static_cast<void>(one_.close_file());
    EXPECT_EQ(detach(point()), 0);
    EXPECT_EQ(mount_->unmount(), 0);
    EXPECT_EQ(read_file(source())[64], 5);
    EXPECT_EQ(type_at(point()), "");
}

TEST_P(mounted_places, what_lies_over_the_point_stays) {
    ASSERT_TRUE(cover(point()));
    write_file(folder_ / "point/mark", pattern(1, 100));
    EXPECT_EQ(mount_->unmount(), -EBUSY) << "the mount is below it";
    EXPECT_FALSE(mount_->is_mounted());
    EXPECT_EQ(type_at(point()), "tmpfs");
    EXPECT_EQ(read_file(folder_ / "point/mark"), pattern(1, 100));
    EXPECT_EQ(detach(point()), 0);
    EXPECT_EQ(type_at(point()), "fuse.penstock");
    EXPECT_EQ(detach(point()), 0);
}

TEST_P(mounted_places, a_mount_goes_by_the_name_that_its_folder_has_then) {
    EXPECT_EQ(mount_->unmount(), 0);
    const std::string usual = folder_ / "top/point", renamed = folder_ / "renamed/point";
    std::filesystem::create_directories(usual);
    const status s = mount_directory(*runtime_, folder_ / "source", usual, settings(), mount_);
    ASSERT_TRUE(s.ok()) << s.message;
    std::filesystem::rename(folder_ / "top", folder_ / "renamed");
    ASSERT_EQ(type_at(renamed), "fuse.penstock");
    std::filesystem::create_directories(usual);
    ASSERT_TRUE(cover(usual));
    EXPECT_EQ(mount_->unmount(), 0);  // else it would have waited in vain, and say -EBUSY
    EXPECT_EQ(type_at(renamed), "");
    EXPECT_EQ(type_at(usual), "tmpfs");
    EXPECT_EQ(detach(usual), 0);
}

// A mount below what covers its folder has the name still, and nothing lies at that.
TEST_P(mounted_places, a_point_in_what_covers_a_mount_is_free) {
    EXPECT_EQ(mount_->unmount(), 0);
    const std::string usual = folder_ / "top/point";
    std::filesystem::create_directories(usual);
    const auto mount_there = [&](std::unique_ptr<file_mount>& out) {
        const status s = mount_directory(*runtime_, folder_ / "source", usual, settings(), out);
        EXPECT_TRUE(s.ok()) << s.message;
        return s.ok();
    };
    ASSERT_TRUE(mount_there(mount_));
    ASSERT_TRUE(cover(folder_ / "top"));
    std::filesystem::create_directories(usual);
    std::unique_ptr<file_mount> second;
    if (mount_there(second)) EXPECT_EQ(second->unmount(), 0);
    EXPECT_EQ(detach(folder_ / "top"), 0);
    EXPECT_EQ(type_at(usual), "fuse.penstock");
    EXPECT_EQ(mount_->unmount(), 0);
}

// A link and the working directory change what a name means.
TEST_P(mounted_places, a_relative_point_is_that_of_the_beginning) {
    EXPECT_EQ(mount_->unmount(), 0);
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::create_directories(folder_ / "else/point");
    ASSERT_TRUE(cover(folder_ / "else/point"));
    std::filesystem::create_symlink("point", folder_ / "link");
    for (const char* const name : {"point", "link"}) {
        std::filesystem::current_path(folder_.path());
        const status s = mount_directory(*runtime_, "source", name, settings(), mount_);
        if (!s.ok()) {
            ADD_FAILURE() << s.message;
            break;
        }
        std::filesystem::remove(folder_ / "link");
        std::filesystem::create_symlink("else/point", folder_ / "link");
        std::filesystem::current_path(folder_ / "else");
        EXPECT_EQ(type_at(point()), "fuse.penstock");
        EXPECT_EQ(mount_->unmount(), 0);
        EXPECT_EQ(type_at(point()), "") << name;
        EXPECT_EQ(type_at(folder_ / "else/point"), "tmpfs") << name;
        std::filesystem::remove(folder_ / "link");
        std::filesystem::create_symlink("point", folder_ / "link");
    }
    std::filesystem::current_path(before);
    EXPECT_EQ(detach(folder_ / "else/point"), 0);
}

// A process that uses up its descriptors while it serves: the mount needs none to find its place.
TEST_P(mounted_places, a_mount_goes_where_no_descriptor_is_free) {
    rlimit usual{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
    const rlimit low{200, usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    std::vector<host::owned_fd> all;
    for (;;) {
        host::owned_fd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (!next) break;
        all.push_back(std::move(next));
    }
    const int code = mount_->unmount();
    all.clear();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
    EXPECT_EQ(code, 0);
    EXPECT_EQ(type_at(point()), "");
    if (type_at(point()) != "") detach(point());
}

INSTANTIATE_TEST_SUITE_P(on, mounted_places,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::cpu, true)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test
