// Regions that are filled from the cache of a runtime: of what, of what not, and around what.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include "hub/hub.hpp"
#include "os/file_kind.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

using content = std::vector<std::uint8_t>;

constexpr std::uint64_t grain = 4096, file_pages = 300, file_size = file_pages * grain - 700;

class region_from_cache : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        write_file(path_, content_);
        let_files_settle();
        options_ = region_runtime(folder_, GetParam());
        options_.page_bytes = 4096;
        options_.cache_bytes = 4 << 20;
        options_.window_bytes = 0;
    }
    void make() { runtime_ = make_runtime(options_); }
    // The pages that hold the bytes come into the cache.
    void read_in_kernel(std::uint64_t offset, std::uint64_t count) {
        const int file = runtime_->open(path_);
        ASSERT_GE(file, 0);
        content got(count);
        EXPECT_EQ(runtime_->read(file, got.data(), static_cast<std::int64_t>(count),
                                 static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(count));
        EXPECT_EQ(runtime_->close(file), 0);
    }
    [[nodiscard]] std::unique_ptr<file_region> map(protection access) {
        return map_whole(*runtime_, path_, access, {.outside_writers = false});
    }
    void expect_right(file_region& r) {
        EXPECT_TRUE(peek(r, GetParam(), 0, file_size) == content_);
        EXPECT_EQ(peek(r, GetParam(), file_size, 700), content(700, 0)) << "behind the file's end";
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    content content_ = pattern(7, file_size);
    options options_;
    std::unique_ptr<runtime> runtime_;
};

// Lends what another one does, and finds each time that the file was written meanwhile.
struct doubting_source final : host::page_source {
    std::uint64_t read(int, std::uint64_t, std::uint64_t, const host::byte_sink&) override {
        return 0;
    }
    bool lend(const host::file_identity& now, host::lent_file& out) override {
        return real->lend(now, out);
    }
    bool is_lent_as_is(const host::lent_file& lent) override {
        EXPECT_TRUE(real->is_lent_as_is(lent));
        ++asked;
        return false;
    }
    host::page_source* real = nullptr;
    int asked = 0;
};

}  // namespace

TEST_P(region_from_cache, what_the_cache_has_and_the_rest_from_the_file) {
    make();
    const auto before = map(protection::read);
    EXPECT_EQ(before->traffic().pages_from_caches, 0u) << "nothing was opened";
    EXPECT_EQ(before->close(), 0);
    read_in_kernel(10 * grain, 50 * grain);
    read_in_kernel(file_size - 100, 100);
    for (const protection access : {protection::read, protection::read_write}) {
        const auto r = map(access);
        EXPECT_EQ(r->traffic().pages_from_caches, 51u);
        EXPECT_EQ(r->traffic().pages_fetched, file_pages);
        expect_right(*r);
        EXPECT_EQ(r->release(), 0) << "what came from the cache is its base too";
        EXPECT_EQ(r->close(), 0);
    }
    read_in_kernel(0, file_size);
    const auto r = map(protection::read);
    EXPECT_EQ(r->traffic().pages_from_caches, file_pages);
    expect_right(*r);
}

TEST_P(region_from_cache, pages_of_every_size_from_that_of_a_region_on) {
    for (const std::uint64_t size : {512, 2048, 4096, 65536}) {
        options_.page_bytes = size;
        make();
        read_in_kernel(0, file_size);
        const auto r = map(protection::read_write);
        EXPECT_EQ(r->traffic().pages_from_caches, size < grain ? 0 : file_pages) << size;
        expect_right(*r);
        runtime_.reset();
    }
}

TEST_P(region_from_cache, a_file_that_changed_is_read_itself) {
    make();
    read_in_kernel(0, file_size);
    std::fill_n(content_.begin() + 50, 3, 200);
    patch_file(path_, 50, content(3, 200));
    auto r = map(protection::read);
    EXPECT_EQ(r->traffic().pages_from_caches, 0u) << "changed just now";
    expect_right(*r);
    r.reset();
    let_files_settle();
    r = map(protection::read);
    EXPECT_EQ(r->traffic().pages_from_caches, 0u) << "the cache has the older file";
    expect_right(*r);
    r.reset();
    read_in_kernel(0, file_size);
    r = map(protection::read);
    EXPECT_EQ(r->traffic().pages_from_caches, file_pages) << "and now the newer one";
    expect_right(*r);
}

TEST_P(region_from_cache, what_came_from_a_file_that_is_written_meanwhile_is_read_again) {
    host::hub shared;
    host::runtime_hooks hooks;
    hooks.shared = &shared;
    runtime_ = make_runtime(options_, hooks);
    read_in_kernel(0, file_size);
    host::file_facts facts;
    const int fd = host::open_regular(host::linux_environment(), path_, facts);
    ASSERT_GE(fd, 0);
    doubting_source doubting;
    shared.visit_caches(facts.identity, [&](host::page_source& source, const host::lent_file&) {
        doubting.real = &source;
    });
    ::close(fd);
    ASSERT_NE(doubting.real, nullptr);
    shared.leave(*doubting.real);
    shared.enter(doubting);
    {
        const auto r = map(protection::read);
        EXPECT_EQ(doubting.asked, 1);
        EXPECT_EQ(r->traffic().pages_from_caches, 0u);
        expect_right(*r);
    }
    shared.leave(doubting);
    shared.enter(*doubting.real);
    runtime_.reset();
}

TEST_P(region_from_cache, nothing_comes_from_a_cache_that_kernels_write_the_file_through) {
    make();
    const int file = runtime_->open(path_, open_read_write);
    ASSERT_GE(file, 0);
    content got(file_size);
    EXPECT_EQ(runtime_->read(file, got.data(), file_size, 0), static_cast<std::int64_t>(file_size));
    const auto r = map(protection::read);
    EXPECT_EQ(r->traffic().pages_from_caches, 0u);
    expect_right(*r);
    EXPECT_EQ(runtime_->close(file), 0);
}

TEST_P(region_from_cache, an_acquire_keeps_what_the_region_changed) {
    make();
    const auto writer = map(protection::read_write), reader = map(protection::read_write);
    poke(*reader, GetParam(), 20 * grain + 8, {1, 2, 3});  // not released
    const content other = pattern(9, 30 * grain);
    poke(*writer, GetParam(), 15 * grain, other);
    EXPECT_EQ(writer->release(), 30);
    EXPECT_EQ(writer->close(), 0);  // so that no region has them
    std::copy(other.begin(), other.end(), content_.begin() + 15 * grain);
    let_files_settle();
    read_in_kernel(0, file_size);
    EXPECT_EQ(reader->acquire(), 30);
    EXPECT_EQ(reader->traffic().pages_from_caches, 30u);
    const content own = {1, 2, 3};
    std::copy(own.begin(), own.end(), content_.begin() + 20 * grain + 8);
    expect_right(*reader);
    EXPECT_EQ(reader->release(), 1);
    EXPECT_TRUE(read_file(path_) == content_);
}

TEST_P(region_from_cache, another_runtime_and_one_that_has_ended) {
    make();
    const auto second = make_runtime(options_);
    read_in_kernel(0, file_size);
    std::unique_ptr<file_region> r;
    ASSERT_TRUE(map_region(*second, path_, 0, 0, protection::read, {}, r).ok());
    EXPECT_EQ(r->traffic().pages_from_caches, file_pages);
    expect_right(*r);
    runtime_.reset();
    ASSERT_TRUE(map_region(*second, path_, 0, 0, protection::read, {}, r).ok());
    EXPECT_EQ(r->traffic().pages_from_caches, 0u);
    expect_right(*r);
}

INSTANTIATE_TEST_SUITE_P(on, region_from_cache, testing::Values(backend::cpu, backend::gpu),
                         [](const auto& info) {
                             return std::string(info.param == backend::gpu ? "gpu" : "cpu");
                         });

}  // namespace penstock::test
