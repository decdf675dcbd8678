// Files that change between the two ways of a mount: passed through while no region and no kernel
// uses them, served else (docs/protocol/mount_pass.md). Programs, a region and kernels use one file
// in random turns, and each sees what was changed before. Skipped where the operating system cannot
// pass files through.
#include <gtest/gtest.h>

#include <sys/vfs.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "hub/hub.hpp"
#include "mount/background_session.hpp"
#include "mount/mounted_backend.hpp"
#include "penstock/pieces.hpp"

namespace penstock::test::passing {

namespace {

using bytes = std::vector<std::uint8_t>;
constexpr region_options by_page{.outside_writers = false};
constexpr std::uint64_t size = 32 << 10;

bytes bytes_of(std::uint64_t value) {
    bytes out(8);
    std::memcpy(out.data(), &value, 8);
    return out;
}

std::uint64_t word_in(const bytes& all, std::uint64_t at) {
    std::uint64_t out = 0;
    std::memcpy(&out, all.data() + at, 8);
    return out;
}

// PENSTOCK_PASS_SEEDS=N for a longer run.
unsigned seeds_of(backend where) {
    const char* const wanted = std::getenv("PENSTOCK_PASS_SEEDS");
    return wanted != nullptr       ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10))
           : where == backend::gpu ? 20
                                   : 60;
}

class passed_files : public mounted_backend {
protected:
    void SetUp() override {
        mounted_backend::SetUp();
        if (mount_ != nullptr && !mount_->report().passes_through)
            GTEST_SKIP() << "files cannot be passed through: that takes root, and Linux 6.9";
    }

    // The same mount in place of the one that is there, but one that tells the regions and kernels
    // of this process nothing, since it has another hub.
    void mount_untold() {
        ASSERT_EQ(mount_->unmount(), 0);
        mount::serve_options wanted;
        wanted.source = folder_ / "source";
        wanted.point = folder_ / "point";
        wanted.beside_kernels = true;
        std::unique_ptr<mount::background_session> session;
        const status s = mount::background_session::open(wanted, session);
        ASSERT_TRUE(s.ok()) << s.message;
        session->start(other_hub_, {});
        mount_ = std::make_unique<file_mount>(std::move(session));
    }

    // The mount hears of a close a little after the program.
    void close(program& of) const {
        const std::uint64_t before = mount_->report().open_now;
        EXPECT_EQ(of.close_file(), 0);
        while (mount_->report().open_now >= before) std::this_thread::yield();
    }
    std::uint64_t opens() const { return mount_->report().opens; }
    std::uint64_t passed() const { return mount_->report().passed_opens; }

    host::hub other_hub_;
};

// One file, two programs, a region and kernels, in the order of a seed. Each byte that is read
// anywhere is compared with a copy. Nothing is done at the same time.
class random_use {
public:
    random_use(runtime& rt, backend where, std::array<program*, 2> programs, std::string source,
               std::string seen_as, std::uint64_t seed)
        : rt_(rt),
          where_(where),
          users_{{{programs[0]}, {programs[1]}}},
          source_(std::move(source)),
          seen_as_(std::move(seen_as)),
          random_(seed) {
        write_file(source_, all_);
    }
    ~random_use() {
        for (user& u : users_)
            if (u.flags >= 0 || u.mapped) u.is->close_file();
    }
    random_use(const random_use&) = delete;
    random_use& operator=(const random_use&) = delete;

    // What was wrong first; or nothing.
    std::string run(unsigned steps) {
        for (unsigned step = 0; step < steps; ++step) {
            const char* const wrong = do_step();
            if (wrong != nullptr) return "step " + std::to_string(step) + ": " + wrong;
        }
        for (user& u : users_)
            if (const char* const wrong = close(u); wrong != nullptr) return wrong;
        return read_file(source_) == all_ ? "" : "the file differs at the end";
    }

private:
    struct user {
        program* is = nullptr;
        int flags = -1;  // of what it has open
        bool mapped = false;
    };

    std::uint64_t below(std::uint64_t end) { return random_() % end; }
    std::uint64_t place() { return below(size - 8); }

    const char* do_step() {
        user& u = users_[below(2)];
        switch (below(9)) {
            case 0: return open(u);
            case 1: return close(u);
            case 2: return map(u);
            case 3:
            case 4: return write(u);
            case 5: return read(u);
            case 6: return begin_or_end();
            default: return region_ == nullptr ? kernel_reads() : use_region();
        }
    }
    const char* open(user& u) {
        if (u.flags >= 0 || u.mapped) return nullptr;
        constexpr std::array ways{O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
        u.flags = ways[below(ways.size())];
        return u.is->open(seen_as_, u.flags) < 0 ? "open failed" : nullptr;
    }
    static const char* close(user& u) {
        if (u.flags < 0 && !u.mapped) return nullptr;
        u.flags = -1;
        u.mapped = false;
        return u.is->close_file() != 0 ? "close failed" : nullptr;
    }
    const char* map(user& u) {
        if (u.flags != O_RDWR) return nullptr;
        if (!u.mapped) {
            u.mapped = true;
            return u.is->map(size) != 0 ? "mmap failed" : nullptr;
        }
        u.flags = -1;
        return u.is->keep_mapping() != 0 ? "close failed" : nullptr;
    }
    const char* write(user& u) {
        const std::uint64_t value = random_();
        std::uint64_t at = place();
        if (u.mapped) {
            at &= ~7ull;
            if (u.is->store(at, value) != 0) return "a store failed";
        } else if (u.flags == O_WRONLY || u.flags == O_RDWR) {
            if (u.is->write(at, value) != 8) return "a write failed";
        } else {
            return nullptr;
        }
        change(at, value);
        return nullptr;
    }
    const char* read(user& u) {
        std::uint64_t at = place();
        program::answer seen{8, word_in(all_, at)};
        if (u.mapped) {
            at &= ~7ull;
            seen = u.is->load(at);
        } else if (u.flags == O_RDONLY || u.flags == O_RDWR) {
            seen = u.is->read(at);
        }
        if (seen.code < 0) return "a read failed";
        return seen.value != word_in(all_, at) ? "a program read old bytes" : nullptr;
    }
    const char* begin_or_end() {
        if (region_ != nullptr) {
            region_.reset();
            return nullptr;
        }
        region_ = map_whole(rt_, source_, protection::read_write, by_page);
        return compare("a region began with old bytes");
    }
    const char* use_region() {
        if (region_->acquire() < 0) return "acquire failed";
        if (const char* const wrong = compare("a region acquired old bytes"); wrong != nullptr)
            return wrong;
        if (below(2) == 0) return nullptr;
        const std::uint64_t at = place(), value = random_();
        poke(*region_, where_, at, bytes_of(value));
        change(at, value);
        return region_->release() < 0 ? "release failed" : nullptr;
    }
    const char* compare(const char* wrong) {
        return peek(*region_, where_, 0, size) == all_ ? nullptr : wrong;
    }
    // Rarely: the runtime keeps the pages, so the file counts as used from then on.
    const char* kernel_reads() {
        if (below(8) != 0) return nullptr;
        const int fd = rt_.open(source_);
        if (fd < 0) return "a kernel's open failed";
        bytes seen(size);
        const bool whole = rt_.read(fd, seen.data(), size, 0) == size;
        rt_.close(fd);
        if (!whole) return "a kernel's read failed";
        return seen == all_ ? nullptr : "a kernel read old bytes";
    }
    void change(std::uint64_t at, std::uint64_t value) { std::memcpy(all_.data() + at, &value, 8); }

    runtime& rt_;
    const backend where_;
    std::array<user, 2> users_;
    const std::string source_, seen_as_;
    std::mt19937_64 random_;
    bytes all_ = pattern(5, size);
    std::unique_ptr<file_region> region_;
};

}  // namespace

TEST_P(passed_files, only_while_nothing_of_the_process_uses_them) {
    write_file(source(), bytes(size, 1));
    ASSERT_GE(one_.open(seen_as()), 0);
    EXPECT_EQ(passed(), 1u);
    close(one_);
    {
        const auto r = map_whole(*runtime_, source(), protection::read, by_page);
        ASSERT_GE(one_.open(seen_as()), 0);
        EXPECT_EQ(passed(), 1u);
        close(one_);
    }
    ASSERT_GE(one_.open(seen_as()), 0);
    EXPECT_EQ(passed(), 2u);
    close(one_);
    const int fd = runtime_->open(source());
    ASSERT_GE(fd, 0);
    ASSERT_GE(one_.open(seen_as()), 0);
    EXPECT_EQ(passed(), 2u);
    EXPECT_EQ(opens(), 4u);
    close(one_);
    EXPECT_EQ(runtime_->close(fd), 0);
}

TEST_P(passed_files, while_a_program_has_one_open_others_get_it_the_same_way) {
    write_file(source(), bytes(size, 1));
    ASSERT_GE(one_.open(seen_as(), O_RDONLY), 0);
    const auto r = map_whole(*runtime_, source(), protection::read_write, by_page);
    ASSERT_GE(two_.open(seen_as()), 0);
    EXPECT_EQ(passed(), 2u);
    for (std::uint64_t round = 1; round < 20; ++round) {
        EXPECT_EQ(two_.write(round * 8, round), 8);
        EXPECT_EQ(one_.read(round * 8).value, round);
        EXPECT_GE(r->acquire(), 0);
        EXPECT_EQ(word_in(peek(*r, where(), round * 8, 8), 0), round);
        poke(*r, where(), 8192, bytes_of(round));
        EXPECT_EQ(r->release(), 1);
        EXPECT_EQ(one_.read(8192).value, round);
    }
    EXPECT_EQ(two_.write(0, 99), 8);
    close(one_);
    close(two_);
    ASSERT_GE(two_.open(seen_as()), 0);
    EXPECT_EQ(passed(), 2u);  // now it is served, and changes are known by page
    EXPECT_GE(r->acquire(), 0);
    EXPECT_EQ(word_in(peek(*r, where(), 0, 8), 0), 99u);
    // An acquire may bring more than what changed; once in hundreds of runs the first one did.
    std::int64_t fetched = 0;
    for (std::uint64_t round = 0; fetched != 1 && round < 20; ++round) {
        EXPECT_EQ(two_.write(16384, 7 + round), 8);
        fetched = r->acquire();
        EXPECT_GE(fetched, 1);
        EXPECT_EQ(word_in(peek(*r, where(), 16384, 8), 0), 7 + round);
    }
    EXPECT_EQ(fetched, 1);
    close(two_);
}

// A mapping outlives the descriptor, and the mount does not hear of its end. Stores to a page that
// is dirty already leave no trace in the file's times.
TEST_P(passed_files, a_mapping_that_outlives_the_descriptor_is_not_forgotten) {
    write_file(source(), bytes(size, 0));
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(size), 0);
    ASSERT_EQ(one_.keep_mapping(), 0);
    const auto r = map_whole(*runtime_, source(), protection::read_write, by_page);
    for (std::uint64_t round = 1; round < 20; ++round) {
        EXPECT_EQ(one_.store(64, round), 0);
        EXPECT_GE(r->acquire(), 0);
        ASSERT_EQ(word_in(peek(*r, where(), 64, 8), 0), round);
        poke(*r, where(), 128, bytes_of(round));
        EXPECT_EQ(r->release(), 1);
        ASSERT_EQ(one_.load(128).value, round);
    }
    ASSERT_GE(two_.open(seen_as()), 0);  // sees the mapping's bytes, and is seen there, at once
    EXPECT_EQ(passed(), 2u);
    EXPECT_EQ(one_.store(64, 100), 0);
    EXPECT_EQ(two_.read(64).value, 100u);
    EXPECT_EQ(two_.write(64, 101), 8);
    EXPECT_EQ(one_.load(64).value, 101u);
    close(two_);
    EXPECT_EQ(one_.store(64, 102), 0);
    EXPECT_EQ(one_.close_file(), 0);
    ASSERT_GE(two_.open(seen_as()), 0);
    EXPECT_EQ(passed(), 2u);
    EXPECT_EQ(two_.read(64).value, 102u);
    EXPECT_GE(r->acquire(), 0);
    EXPECT_EQ(word_in(peek(*r, where(), 64, 8), 0), 102u);
    close(two_);
}

TEST_P(passed_files, kernels_see_stores_to_them_at_the_next_open) {
    write_file(source(), bytes(size, 0));
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(size), 0);
    for (std::uint64_t round = 1; round < 20; ++round) {
        EXPECT_EQ(one_.store(64, round), 0);
        const int fd = runtime_->open(source());
        ASSERT_GE(fd, 0);
        std::uint64_t seen = 0;
        EXPECT_EQ(runtime_->read(fd, &seen, 8, 64), 8);
        ASSERT_EQ(seen, round);
        EXPECT_EQ(runtime_->close(fd), 0);
    }
    close(one_);
}

TEST_P(passed_files, random_use_while_they_change_between_the_ways) {
    const unsigned seeds = seeds_of(where());
    for (unsigned seed = 1; seed <= seeds; ++seed) {
        const std::string name = "f" + std::to_string(seed);
        random_use all(*runtime_, where(), {&one_, &two_}, folder_ / ("source/" + name),
                       folder_ / ("point/" + name), seed);
        ASSERT_EQ(all.run(400), "") << "seed " << seed;
    }
    EXPECT_GT(passed(), seeds);
    EXPECT_GT(opens() - passed(), seeds);
}

// The canary: where regions and kernels are not told what is passed through, the same test must
// find old bytes.
TEST_P(passed_files, a_mount_that_tells_nothing_is_found_out) {
    mount_untold();
    std::string found;
    for (unsigned seed = 1; seed <= 20 && found.empty(); ++seed) {
        const std::string name = "f" + std::to_string(seed);
        random_use all(*runtime_, where(), {&one_, &two_}, folder_ / ("source/" + name),
                       folder_ / ("point/" + name), seed);
        found = all.run(400);
    }
    EXPECT_NE(found.find("old bytes"), std::string::npos) << found;
}

namespace {

// A folder on tmpfs, where a store to a page that a mapping has read leaves the file's times as
// they were; empty where there is none.
class memory_folder {
public:
    memory_folder() {
        std::string name = "/dev/shm/penstock-XXXXXX";
        struct statfs facts {};
        constexpr long tmpfs = 0x01021994;
        if (::statfs("/dev/shm", &facts) == 0 && facts.f_type == tmpfs &&
            ::mkdtemp(name.data()) != nullptr)
            path_ = name;
    }
    ~memory_folder() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    memory_folder(const memory_folder&) = delete;
    memory_folder& operator=(const memory_folder&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

// A file there, passed through by one mount, read through a pool by another, and in a buffer and
// pieces of the process.
class stored_in_memory : public passed_files {
protected:
    void SetUp() override {
        passed_files::SetUp();
        if (IsSkipped()) return;
        if (memory_.path().empty()) GTEST_SKIP() << "/dev/shm is no tmpfs";
        EXPECT_EQ(mount_->unmount(), 0);
        write_file(file_, bytes(size, 0));
        let_files_settle();
        options wanted = region_runtime(folder_, where());
        wanted.roots = {memory_.path()};
        runtime_ = make_runtime(wanted);
        std::filesystem::create_directory(folder_ / "pooled");
        const buffer_options small{.where = backend::cpu,
                                   .host_bytes = 4 * size,
                                   .device_bytes = size,
                                   .page_bytes = 4096,
                                   .sessions = 4,
                                   .fixed_pages = 1};
        ASSERT_TRUE(buffer_pool::make(small, pool_).ok());
        ASSERT_TRUE(mount_directory(*runtime_, memory_.path(), folder_ / "point", {}, mount_).ok());
        ASSERT_TRUE(mount_directory(*runtime_, memory_.path(), folder_ / "pooled",
                                    {.buffer = pool_.get()}, pooled_)
                        .ok());
    }
    void TearDown() override {
        if (pooled_ != nullptr) {
            EXPECT_EQ(pooled_->unmount(), 0);
        }
        passed_files::TearDown();
    }
    // By a mapping that is gone before this returns, and has read the page before.
    void store_in_program(std::uint64_t value) {
        ASSERT_GE(one_.open(seen_as()), 0);
        ASSERT_EQ(one_.map(size), 0);
        EXPECT_EQ(one_.load(64).code, 0);
        EXPECT_EQ(one_.store(64, value), 0);
        close(one_);
    }
    std::uint64_t read_by_region() {
        const auto r = map_whole(*runtime_, file_, protection::read, by_page);
        from_buffers_ += r->traffic().pages_from_buffers;
        return word_in(peek(*r, where(), 64, 8), 0);
    }
    std::uint64_t read_by_pool() const { return word_in(read_file(folder_ / "pooled/f"), 64); }

    const memory_folder memory_;
    const std::string file_ = memory_.path() + "/f";
    std::unique_ptr<file_mount> pooled_;
    std::uint64_t from_buffers_ = 0;
};

}  // namespace

TEST_P(stored_in_memory, is_new_for_regions_that_a_buffer_fills) {
    std::uint32_t number = 0;
    ASSERT_TRUE(pool_->open_file(file_, buffer::file_access::read, number).ok());
    const auto session = pool_->open_session();
    bytes there(size);
    ASSERT_EQ(session->read(number, 0, reinterpret_cast<std::byte*>(there.data()), size),
              static_cast<std::int64_t>(size));
    EXPECT_EQ(read_by_region(), 0u);
    EXPECT_GT(from_buffers_, 0u);
    for (std::uint64_t round = 1; round < 5; ++round) {
        store_in_program(round);
        ASSERT_EQ(passed(), round);
        EXPECT_EQ(read_by_region(), round);
    }
    const int fd = runtime_->open(file_);  // from here on the file is served
    std::uint64_t seen = 0;
    EXPECT_EQ(runtime_->read(fd, &seen, 8, 64), 8);
    EXPECT_EQ(seen, 4u);
    EXPECT_EQ(runtime_->close(fd), 0);
}

TEST_P(stored_in_memory, is_new_for_pieces) {
    std::unique_ptr<file_pieces> pieces;
    ASSERT_TRUE(map_pieces(*runtime_, file_, {.piece_bytes = 2 << 20}, pieces).ok());
    const byte_range all{0, size};
    EXPECT_EQ(pieces->expect(all), 1);
    EXPECT_EQ(pieces->done(all), 0);
    EXPECT_EQ(pieces->expect(all), 0) << "nothing was stored, and nothing comes";
    EXPECT_EQ(pieces->done(all), 0);
    for (std::uint64_t round = 1; round < 5; ++round) {
        store_in_program(round);
        ASSERT_EQ(passed(), round);
        EXPECT_EQ(pieces->expect(all), 1) << round;
        std::uint64_t there = round;
        if (where() == backend::cpu)
            std::memcpy(&there, static_cast<const char*>(pieces->data()) + 64, sizeof there);
        EXPECT_EQ(there, round);
        EXPECT_EQ(pieces->done(all), 0);
    }
}

TEST_P(stored_in_memory, is_new_for_programs_that_read_through_a_pool) {
    for (std::uint64_t round = 0; round < 5; ++round) {
        if (round != 0) store_in_program(round);
        ASSERT_EQ(passed(), round);
        const std::uint64_t before = pooled_->report().bytes_from_buffer;
        for (int tries = 0; tries < 20'000; ++tries) {
            ASSERT_EQ(read_by_pool(), round);
            if (pooled_->report().bytes_from_buffer != before) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_NE(pooled_->report().bytes_from_buffer, before) << "it is there again";
    }
}

INSTANTIATE_TEST_SUITE_P(on, stored_in_memory,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu)),
                         [](const auto& info) { return name_of(info); });

INSTANTIATE_TEST_SUITE_P(on, passed_files,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test::passing
