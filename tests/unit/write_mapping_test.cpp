// Writable mappings: where the file ends when one is given back, and what becomes of one that
// outlives its descriptor.
#include <cstring>

#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class write_mapping : public testing::Test {
protected:
    temporary_folder folder;
    const std::string path = folder / "file";
    std::string log;
    std::unique_ptr<runtime> rt;

    void SetUp() override {
        options o = small_options(folder);
        o.writable = true;
        o.write_behind_bytes = o.cache_bytes;
        o.log = [this](const std::string& line) { log += line + "\n"; };
        rt = make_runtime(o);
    }
    [[nodiscard]] runtime_ref fs() const { return rt->ref(); }
    [[nodiscard]] std::uint64_t told_size(int fd) const {
        file_stat facts{};
        EXPECT_EQ(rt->stat(fd, &facts), 0);
        return facts.size_bytes;
    }
    void expect_sound() const {
        const engine::invariant_report found = engine::check_invariants(fs().view, {0, 0});
        EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
    }
};

}  // namespace

// The file has 1000 bytes; 100 more are mapped and three of them changed.
TEST_F(write_mapping, the_file_ends_where_the_mapping_did) {
    for (const bool once : {false, true}) {
        write_file(path, pattern(1, 1000));
        const int fd = rt->open(path, once ? open_write_once : open_read_write);
        ASSERT_GE(fd, 0);
        const writable_mapping end = map_write(lane{}, fs(), fd, 1000, 100);
        ASSERT_EQ(end.bytes, 100);
        std::memset(end.data, 7, 3);
        EXPECT_EQ(unmap(lane{}, fs(), end), 0);
        EXPECT_EQ(told_size(fd), 1100u);
        EXPECT_EQ(rt->fsync(fd), 0);
        auto wanted = pattern(1, 1000);
        wanted.insert(wanted.end(), {7, 7, 7});
        wanted.resize(1100);
        EXPECT_EQ(bytes_on_disk(path), wanted) << "once: " << once;
        EXPECT_EQ(rt->close(fd), 0);
        EXPECT_EQ(bytes_on_disk(path), wanted) << "once: " << once;
    }
    expect_sound();
}

TEST_F(write_mapping, nothing_needs_to_be_changed_in_it) {
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    for (std::int64_t i = 0; i < 4; ++i) {
        const writable_mapping whole =
            map_write(lane{}, fs(), fd, i * static_cast<std::int64_t>(page), page);
        ASSERT_EQ(whole.bytes, static_cast<std::int64_t>(page));
        if (i == 0) whole.data[0] = std::byte{1};
        EXPECT_EQ(unmap(lane{}, fs(), whole), 0);
    }
    EXPECT_EQ(rt->msync(fd, 0, 4 * page), 0);
    std::vector<std::uint8_t> wanted(4 * page);
    wanted[0] = 1;
    EXPECT_EQ(bytes_on_disk(path), wanted);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), wanted);
}

TEST_F(write_mapping, inside_the_file_nothing_is_written_that_did_not_change) {
    write_file(path, pattern(2, page));
    const int fd = rt->open(path, open_read_write);
    const writable_mapping part = map_write(lane{}, fs(), fd, 0, page);
    ASSERT_EQ(part.bytes, static_cast<std::int64_t>(page));
    EXPECT_EQ(unmap(lane{}, fs(), part), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->stats().write_backs, 0u);
    EXPECT_EQ(bytes_on_disk(path), pattern(2, page));
}

// What stat says and what the file has are one thing, also in between.
TEST_F(write_mapping, msync_of_a_mapping_grows_the_file_as_far_as_it_says) {
    const int fd = rt->open(path, open_read_write | open_create);
    const writable_mapping held = map_write(lane{}, fs(), fd, 10, 200);
    ASSERT_EQ(held.bytes, 200);
    held.data[4] = std::byte{9};
    EXPECT_EQ(msync(lane{}, fs(), held), 0);
    EXPECT_EQ(told_size(fd), 15u);
    EXPECT_EQ(bytes_on_disk(path).size(), 15u);
    EXPECT_EQ(unmap(lane{}, fs(), held), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), 210u);
}

TEST_F(write_mapping, the_runtime_s_end_writes_the_end_too) {
    const int fd = rt->open(path, open_read_write | open_create);
    const writable_mapping end = map_write(lane{}, fs(), fd, 5, 100);
    EXPECT_EQ(unmap(lane{}, fs(), end), 0);
    rt.reset();
    EXPECT_EQ(bytes_on_disk(path), std::vector<std::uint8_t>(105));
    EXPECT_EQ(log, "");
}

// The mapping keeps the file: its changes are written when it is given back.
TEST_F(write_mapping, one_that_outlives_its_descriptor_is_written_back) {
    write_file(path, pattern(3, 2 * page));
    const int fd = rt->open(path, open_read_write);
    const writable_mapping first = map_write(lane{}, fs(), fd, 0, page),
                           second = map_write(lane{}, fs(), fd, page, page);
    first.data[1] = std::byte{1};
    EXPECT_EQ(rt->close(fd), 0);
    auto wanted = pattern(3, 2 * page);
    first.data[2] = std::byte{2};
    EXPECT_EQ(unmap(lane{}, fs(), first), 0);
    wanted[1] = 1;
    wanted[2] = 2;
    EXPECT_EQ(bytes_on_disk(path), wanted);
    second.data[0] = std::byte{3};
    EXPECT_EQ(unmap(lane{}, fs(), second), 0);
    wanted[page] = 3;
    EXPECT_EQ(bytes_on_disk(path), wanted);
    expect_sound();
    rt.reset();
    EXPECT_EQ(log, "");
}

// After the last mapping is given back the host lets go of the file: the next open looks at it
// anew.
TEST_F(write_mapping, afterwards_what_others_wrote_is_seen) {
    write_file(path, pattern(4, page));
    int fd = rt->open(path, open_read_write);
    const writable_mapping held = map_write(lane{}, fs(), fd, 0, 10);
    held.data[0] = std::byte{1};
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(unmap(lane{}, fs(), held), 0);
    write_file(path, pattern(5, page));
    fd = rt->open(path);
    std::vector<std::uint8_t> got(page);
    EXPECT_EQ(rt->read(fd, got.data(), page, 0), static_cast<std::int64_t>(page));
    EXPECT_EQ(got, pattern(5, page));
    EXPECT_EQ(rt->close(fd), 0);
    expect_sound();
}

TEST_F(write_mapping, the_file_is_open_again_before_it_is_given_back) {
    write_file(path, pattern(6, page));
    int fd = rt->open(path, open_read_write);
    const writable_mapping held = map_write(lane{}, fs(), fd, 0, 10);
    EXPECT_EQ(rt->close(fd), 0);
    fd = rt->open(path);
    ASSERT_GE(fd, 0);
    held.data[0] = std::byte{1};
    EXPECT_EQ(unmap(lane{}, fs(), held), 0);
    EXPECT_EQ(rt->close(fd), 0) << "the last one writes back";
    EXPECT_EQ(bytes_on_disk(path)[0], 1);
    expect_sound();
}

}  // namespace penstock::test
