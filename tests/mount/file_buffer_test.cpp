// Parts of a mount without the mount: what its buffer gives beside changes, errors and second
// nodes, and what those that open its files tell.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "mount/file_buffer.hpp"
#include "mount/own_files.hpp"
#include "os/shared_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using buffer::policy_kind;
using byte_list = std::vector<std::byte>;
constexpr std::uint64_t page_bytes = 4096;
constexpr unsigned sessions = 2;

class buffered_source : public testing::TestWithParam<policy_kind> {
protected:
    void SetUp() override {
        const mount::buffer_options wanted{
            .policy = GetParam(),
            .ram_bytes = 1 << 20,
            .gpu_bytes = GetParam() == policy_kind::native ? 0u : 1u << 18,
            .where = backend::cpu};
        const status made = mount::file_buffer::make(
            wanted, 4, [](const std::string&) {}, buffer_);
        ASSERT_TRUE(made.ok()) << made.message;
        tree_.emplace(::open(std::string(folder_ / "").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
    [[nodiscard]] host::owned_fd open_file(int flags) const {
        return host::owned_fd(
            ::open(std::string(folder_ / "f").c_str(), flags | O_CREAT | O_CLOEXEC, 0600));
    }
    mount::node& look_up() {
        fuse_entry_param entry{};
        EXPECT_EQ(mount::look_up(*tree_, tree_->nodes.at(1), "f", entry), 0);
        return tree_->nodes.at(entry.ino);
    }
    // What a program gets: the source answers where the buffer does not.
    std::uint64_t read(mount::node& file_node, int fd, std::uint64_t offset, byte_list& room) {
        const auto file = mount::file_buffer::file_of(file_node);
        std::int64_t got = buffer_->read(*file, file_node, fd, offset, room.data(), room.size());
        if (got < 0) got = ::pread(fd, room.data(), room.size(), static_cast<off_t>(offset));
        return static_cast<std::uint64_t>(std::max<std::int64_t>(got, 0));
    }

    const temporary_folder folder_;
    std::optional<mount::tree> tree_;
    std::unique_ptr<mount::file_buffer> buffer_;
};

void append(int fd, std::uint64_t at, std::byte value, std::uint64_t count) {
    const byte_list record(count, value);
    EXPECT_EQ(::pwrite(fd, record.data(), count, static_cast<off_t>(at)),
              static_cast<ssize_t>(count));
}

}  // namespace

// With fewer sessions than threads a change waits for others between its steps.
TEST_P(buffered_source, gives_no_zeros_beside_an_append) {
    constexpr std::uint64_t record_bytes = 777;
    constexpr std::uint64_t records = 400;
    const host::owned_fd out = open_file(O_RDWR);
    append(out.get(), 0, std::byte{1}, record_bytes);
    mount::node& file_node = look_up();
    buffer_->opened(file_node, out.get());
    std::atomic<bool> stops{false};
    std::atomic<std::uint64_t> zeros{0}, reads{0};
    const auto follow = [&] {
        byte_list room(2 * page_bytes);
        for (std::uint64_t end = 0; !stops;) {
            const std::uint64_t at = end - std::min(end, record_bytes),
                                got = read(file_node, out.get(), at, room);
            zeros += static_cast<std::uint64_t>(std::count(
                room.begin(), room.begin() + static_cast<std::ptrdiff_t>(got), std::byte{0}));
            end = at + got;
            ++reads;
        }
    };
    std::vector<std::thread> readers;
    for (unsigned i = 0; i < 3 * sessions; ++i) readers.emplace_back(follow);
    while (reads == 0) std::this_thread::yield();
    for (std::uint64_t i = 1; i < records && zeros == 0; ++i) {
        append(out.get(), i * record_bytes, std::byte{1}, record_bytes);
        buffer_->changed(file_node, i * record_bytes, record_bytes);
        std::this_thread::yield();
    }
    stops = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(zeros, 0u) << "of a file that has none";
    EXPECT_GT(buffer_->report().counts.misses, 0u);
    buffer_->closed(file_node);
}

// Behind a gap the file grows first; the rest of the page that was the last one is written then.
TEST_P(buffered_source, has_what_was_written_where_the_file_ended_before) {
    const host::owned_fd out = open_file(O_RDWR);
    append(out.get(), 0, std::byte{1}, 100);
    mount::node& file_node = look_up();
    buffer_->opened(file_node, out.get());
    byte_list room(3 * page_bytes);
    EXPECT_EQ(read(file_node, out.get(), 0, room), 100u);
    append(out.get(), 100, std::byte{1}, 100);
    append(out.get(), 2 * page_bytes, std::byte{1}, 100);
    buffer_->changed(file_node, 2 * page_bytes, 100);  // of two writers the second is told first
    EXPECT_EQ(read(file_node, out.get(), 0, room), 2 * page_bytes + 100);
    EXPECT_EQ(room[150], std::byte{1});
    EXPECT_EQ(room[250], std::byte{0});
    buffer_->closed(file_node);
}

TEST_P(buffered_source, leaves_errors_behind_the_end_to_the_source) {
    const host::owned_fd out = open_file(O_RDWR);
    append(out.get(), 0, std::byte{1}, 100);
    mount::node& file_node = look_up();
    buffer_->opened(file_node, out.get());
    const auto file = mount::file_buffer::file_of(file_node);
    const host::owned_fd unreadable = open_file(O_WRONLY);
    byte_list room(page_bytes);
    const auto read_at = [&](int fd, std::uint64_t offset) {
        return buffer_->read(*file, file_node, fd, offset, room.data(), room.size());
    };
    EXPECT_EQ(read_at(out.get(), 0), 100);
    EXPECT_EQ(read_at(out.get(), 100), 0);
    EXPECT_EQ(read_at(unreadable.get(), 100), -EAGAIN);
    EXPECT_EQ(read_at(unreadable.get(), 0), -EAGAIN);
    buffer_->closed(file_node);
}

// Its pages are of before the change, and cannot be forgotten.
TEST_P(buffered_source, is_not_read_where_a_file_has_become_too_large_for_it) {
    constexpr off_t too_large = (off_t{4} << 20) * page_bytes + 1;  // a word for each page
    for (const bool is_open_meanwhile : {true, false}) {
        const host::owned_fd out = open_file(O_RDWR | O_TRUNC);
        append(out.get(), 0, std::byte{1}, page_bytes);
        mount::node& file_node = look_up();
        byte_list room(page_bytes);
        const auto expect_read = [&](std::byte expected) {
            EXPECT_EQ(read(file_node, out.get(), 0, room), page_bytes);
            EXPECT_EQ(room[0], expected) << is_open_meanwhile;
        };
        buffer_->opened(file_node, out.get());
        expect_read(std::byte{1});
        if (!is_open_meanwhile) buffer_->closed(file_node);
        append(out.get(), 0, std::byte{2}, page_bytes);
        if (::ftruncate(out.get(), too_large) != 0) GTEST_SKIP() << "no files as large as that";
        buffer_->changed(file_node, 0, UINT64_MAX);
        if (!is_open_meanwhile) buffer_->opened(file_node, out.get());
        expect_read(std::byte{2});
        buffer_->closed(file_node);
        append(out.get(), 0, std::byte{3}, page_bytes);
        ASSERT_EQ(::ftruncate(out.get(), page_bytes), 0);
        buffer_->opened(file_node, out.get());
        expect_read(std::byte{3});
        buffer_->closed(file_node);
    }
}

// A file that is found through two mounts of the source is two nodes.
TEST_P(buffered_source, hears_of_changes_by_another_node_of_the_file) {
    const host::owned_fd out = open_file(O_RDWR);
    append(out.get(), 0, std::byte{1}, page_bytes);
    mount::node& one = look_up();
    mount::node other;
    other.fd = ::dup(one.fd);
    other.device = one.device;
    other.inode = one.inode;
    other.lies_on = one.lies_on;
    // The file was open by both, and the last close was the other's.
    buffer_->opened(one, out.get());
    buffer_->opened(other, out.get());
    buffer_->closed(one);
    buffer_->closed(other);
    buffer_->opened(other, out.get());
    byte_list room(page_bytes);
    EXPECT_EQ(read(other, out.get(), 0, room), page_bytes);
    EXPECT_EQ(room[0], std::byte{1});
    append(out.get(), 0, std::byte{2}, page_bytes);
    buffer_->changed(one, 0, page_bytes);
    EXPECT_EQ(read(other, out.get(), 0, room), page_bytes);
    EXPECT_EQ(room[0], std::byte{2}) << "what the file had before";
    buffer_->closed(other);
}

// A pipe has nothing that could be brought to storage, which is an error.
TEST(own_files, tell_what_became_of_a_write_back) {
    const temporary_folder folder;
    const std::string file = folder / "f", pipe = folder / "p";
    write_file(file, {1});
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const auto facts_of = [](const std::string& path) {
        struct stat out {};
        EXPECT_EQ(::stat(path.c_str(), &out), 0);
        return out;
    };
    mount::own_openers opener;
    mount::own_files own(opener, facts_of(file).st_dev);
    own.begin();
    EXPECT_EQ(own.write_back(file, facts_of(file).st_ino), std::optional(0));
    EXPECT_EQ(own.write_back(pipe, facts_of(pipe).st_ino), std::optional(-EINVAL));
    EXPECT_EQ(own.write_back(file, facts_of(pipe).st_ino), std::nullopt) << "another file";
    EXPECT_EQ(own.write_back(folder / "none", facts_of(file).st_ino), std::nullopt);
    own.end();
    EXPECT_EQ(own.write_back(file, facts_of(file).st_ino), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(with, buffered_source,
                         testing::Values(policy_kind::native, policy_kind::gram, policy_kind::dedu),
                         [](const auto& info) {
                             return std::string(info.param == policy_kind::native ? "native"
                                                : info.param == policy_kind::gram ? "gram"
                                                                                  : "dedu");
                         });

}  // namespace penstock::test
