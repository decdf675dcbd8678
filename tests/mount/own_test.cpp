// Files of a mount, opened by the process that serves it: refused.
#include <cerrno>
#include <filesystem>

#include "mount/mounted_backend.hpp"
#include "penstock/table_layout.hpp"

namespace penstock::test {

namespace {

class own_mount : public mounted_backend {
protected:
    // The code, if the message names the file and the source.
    int code_of(const status& s) const {
        const bool is_told = s.message.find(seen_as()) != std::string::npos &&
                             s.message.find("name the file in the source folder (" +
                                            folder_ / "source") != std::string::npos;
        if (!is_told) ADD_FAILURE() << s.message;
        return s.code;
    }
};

}  // namespace

TEST_P(own_mount, gives_its_own_process_no_file) {
    write_file(source(), pattern(5, 100'000));
    EXPECT_EQ(read_file(source()), pattern(5, 100'000));
    EXPECT_GE(one_.open(seen_as()), 0) << "another process";
    EXPECT_EQ(runtime_->open(seen_as(), 0), -EDEADLK);
    EXPECT_EQ(runtime_->open(folder_ / "point/new", open_write | open_create), -EDEADLK);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "source/new"));
    EXPECT_EQ(runtime_->unlink(seen_as()), -EDEADLK);
    EXPECT_EQ(runtime_->rename(seen_as(), folder_ / "point/other"), -EDEADLK);
    std::filesystem::create_symlink(seen_as(), folder_ / "link");
    EXPECT_EQ(runtime_->open(folder_ / "link", 0), -EDEADLK);
    std::unique_ptr<file_region> region;
    EXPECT_EQ(code_of(map_region(*runtime_, seen_as(), 0, 0, protection::read_write, {}, region)),
              -EDEADLK);
    std::unique_ptr<file_pieces> pieces;
    EXPECT_EQ(code_of(map_pieces(*runtime_, seen_as(), {}, pieces)), -EDEADLK);
    table_layout layout;
    EXPECT_EQ(code_of(describe_npy(seen_as(), layout)), -EDEADLK);
    std::unique_ptr<buffer_pool> pool;
    ASSERT_TRUE(buffer_pool::make(small_buffer(), pool).ok());
    std::uint32_t number = 0;
    EXPECT_EQ(code_of(pool->open_file(seen_as(), buffer::file_access::read, number)), -EDEADLK);
    std::filesystem::create_directory(folder_ / "second");
    std::unique_ptr<file_mount> second;
    EXPECT_EQ(mount_directory(*runtime_, folder_ / "point", folder_ / "second", {}, second).code,
              -EDEADLK);
    EXPECT_GE(runtime_->open(source(), 0), 0);
    EXPECT_EQ(mount_->unmount(), 0);
    EXPECT_EQ(runtime_->open(seen_as(), 0), -ENOENT);
}

INSTANTIATE_TEST_SUITE_P(on, own_mount,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test
