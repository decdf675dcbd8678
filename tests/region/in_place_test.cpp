// Regions that are not filled: one mapping of the file, on CPU threads and on the GPU.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "fault/faulty_environment.hpp"
#include "region/support.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::test {

namespace {

using bytes = std::vector<std::uint8_t>;

constexpr region_options at_its_place{.placement = region_placement::in_place};

class in_place : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        options o = region_runtime(folder_, GetParam());
        o.log = [this](const std::string& line) { log_ += line + "\n"; };
        runtime_ = make_runtime(o);
    }
    std::string file(std::uint64_t size) {
        write_file(path_, pattern(7, size));
        let_files_settle();
        return path_;
    }
    status refusal(protection access, const region_options& settings) {
        std::unique_ptr<file_region> out;
        status s = map_region(*runtime_, path_, 0, 0, access, settings, out);
        EXPECT_EQ(out, nullptr);
        return s;
    }
    void expect_message(const status& s, const std::string& part) {
        EXPECT_NE(s.message.find(part), std::string::npos) << s.message;
        EXPECT_NE(s.message.find(path_), std::string::npos) << s.message;
    }
    // As `cp` does over a file that is there.
    void rewrite(const bytes& content) const {
        const int fd = ::open(path_.c_str(), O_WRONLY | O_TRUNC);
        ASSERT_EQ(::pwrite(fd, content.data(), content.size(), 0),
                  static_cast<ssize_t>(content.size()));
        ::close(fd);
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    std::string log_;
    std::unique_ptr<runtime> runtime_;
};

}  // namespace

TEST_P(in_place, a_region_has_the_bytes_of_the_file_and_zeros_behind_it) {
    const std::uint64_t size = (5 << 20) + 123;
    file(size);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->placement(), region_placement::in_place);
    EXPECT_EQ(r->placement_reason(), "it was asked for");
    ASSERT_EQ(r->size_bytes(), size);
    EXPECT_EQ(peek(*r, GetParam(), 0, size), pattern(7, size));
    EXPECT_EQ(peek(*r, GetParam(), size, 4096 - size % 4096), bytes(4096 - size % 4096, 0));
    const region_traffic t = r->traffic();
    EXPECT_EQ(t.pages_fetched, 0u);
    EXPECT_EQ(t.bytes_on_device, 0u);
    EXPECT_EQ(t.bytes_registered, GetParam() == backend::gpu ? (size + 4095) / 4096 * 4096 : 0);
    EXPECT_EQ(t.register_ns != 0, GetParam() == backend::gpu);
    EXPECT_EQ(r->close(), 0);
    EXPECT_EQ(log_, "");
}

TEST_P(in_place, a_part_of_a_file) {
    file(3 << 20);
    std::unique_ptr<file_region> r;
    const status s =
        map_region(*runtime_, path_, 3 * 4096, 10001, protection::read, at_its_place, r);
    ASSERT_TRUE(s.ok()) << s.message;
    const bytes all = pattern(7, 3 << 20);
    EXPECT_EQ(r->size_bytes(), 10001u);
    EXPECT_EQ(peek(*r, GetParam(), 0, 10001),
              bytes(all.begin() + 3 * 4096, all.begin() + 3 * 4096 + 10001));
}

TEST_P(in_place, what_programs_and_regions_write_is_there_after_an_acquire) {
    file(2 << 20);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    const auto writer = map_whole(*runtime_, path_, protection::read_write);
    ASSERT_NE(r, nullptr);
    bytes expected = pattern(7, 2 << 20);
    patch_file(path_, 5000, {1, 2, 3});
    std::copy_n(bytes{1, 2, 3}.begin(), 3, expected.begin() + 5000);
    poke(*writer, GetParam(), 1 << 20, {9});
    EXPECT_EQ(writer->release(), 1);
    expected[1 << 20] = 9;
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(peek(*r, GetParam(), 0, 2 << 20), expected);
    EXPECT_EQ(r->release(), 0);
    EXPECT_EQ(r->sync(), 0);
    EXPECT_EQ(r->prefer(0, 1 << 20), 0);
    EXPECT_EQ(r->prefer(1 << 20, (1 << 20) + 1), -EINVAL);
    EXPECT_EQ(r->traffic().pages_fetched, 0u);
}

TEST_P(in_place, a_file_that_gets_shorter_is_an_error_and_no_signal) {
    file(1 << 20);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    ASSERT_EQ(::truncate(path_.c_str(), (1 << 20) - 1), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    EXPECT_NE(log_.find("shorter than the region"), std::string::npos) << log_;
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    EXPECT_EQ(r->release(), 0);
    EXPECT_EQ(r->close(), 0);
}

TEST_P(in_place, a_file_that_was_written_anew_is_there_after_an_acquire) {
    file(1 << 20);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    const void* const at = r->data();
    for (const std::uint64_t seed : {8u, 9u}) {
        rewrite(pattern(seed, 1 << 20));
        EXPECT_EQ(r->acquire(), 0);
        EXPECT_EQ(r->data(), at);
        EXPECT_EQ(peek(*r, GetParam(), 0, 1 << 20), pattern(seed, 1 << 20));
    }
    ASSERT_EQ(::truncate(path_.c_str(), 5000), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    rewrite(pattern(10, 1 << 20));
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(peek(*r, GetParam(), 0, 1 << 20), pattern(10, 1 << 20));
}

TEST_P(in_place, what_it_cannot_do_is_refused_with_the_cure) {
    file(1 << 20);
    region_options settings = at_its_place;
    for (const auto where : {region_placement::in_place, region_placement::system}) {
        settings.placement = where;
        settings.promote_hot = false;
        status s = refusal(protection::read_write, settings);
        EXPECT_EQ(s.code, -EINVAL);
        expect_message(s, "protection::read");
        settings.promote_hot = true;
        s = refusal(protection::read, settings);
        EXPECT_EQ(s.code, -EINVAL);
        expect_message(s, "promote_hot");
    }
    settings.promote_hot = false;
    settings.placement = static_cast<region_placement>(77);
    expect_message(refusal(protection::read, settings), "region_options::placement");
    write_file(path_, {});
    EXPECT_EQ(refusal(protection::read, at_its_place).code, -EINVAL);
    expect_message(refusal(protection::read, at_its_place), "the file is empty");
}

TEST_P(in_place, after_close_every_call_is_refused) {
    file(1 << 20);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->close(), 0);
    EXPECT_EQ(r->close(), -EBADF);
    EXPECT_EQ(r->data(), nullptr);
    EXPECT_EQ(r->acquire(), -EBADF);
    EXPECT_EQ(r->release(), -EBADF);
    EXPECT_EQ(r->sync(), -EBADF);
    EXPECT_EQ(r->prefer(0, 1), -EBADF);
}

TEST_P(in_place, after_detach_the_memory_alone_is_there) {
    file(1 << 20);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->detach(), 0);
    EXPECT_EQ(peek(*r, GetParam(), 0, 1 << 20), pattern(7, 1 << 20));
    for (const std::int64_t code : {r->acquire(), r->release(), std::int64_t{r->sync()},
                                    r->prefer(0, 1), std::int64_t{r->detach()}})
        EXPECT_EQ(code, -EBADF);
    EXPECT_EQ(r->close(), -EBADF);
    EXPECT_EQ(r->data(), nullptr);
}

TEST_P(in_place, a_region_may_outlive_its_runtime) {
    file(1 << 20);
    const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    runtime_.reset();
    patch_file(path_, 1, {9});
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(peek(*r, GetParam(), 0, 3), (bytes{pattern_byte(7, 0), 9, pattern_byte(7, 2)}));
    EXPECT_EQ(r->close(), 0);
}

TEST_P(in_place, a_hundred_regions_leave_nothing_behind) {
    file(4 << 20);
    const auto mappings = [&] {
        std::ifstream maps("/proc/self/maps");
        std::string line;
        int found = 0;
        while (std::getline(maps, line)) found += line.find(path_) != std::string::npos;
        return found;
    };
    for (int i = 0; i < 100; ++i) {
        const auto r = map_whole(*runtime_, path_, protection::read, at_its_place);
        ASSERT_NE(r, nullptr);
        EXPECT_GE(mappings(), 1);
        if (i % 2 == 0) {
            EXPECT_EQ(r->close(), 0);
        }
    }
    EXPECT_EQ(mappings(), 0);
}

TEST_P(in_place, automatic_says_what_it_chose_and_why) {
    file(4 << 20);
    const auto chosen = [&](protection access, region_options settings) {
        settings.placement = region_placement::automatic;
        log_.clear();
        const auto r = map_whole(*runtime_, path_, access, settings);
        EXPECT_EQ(peek(*r, GetParam(), 0, 4 << 20), pattern(7, 4 << 20));
        EXPECT_NE(log_.find(r->placement_reason() + "\n"), std::string::npos) << log_;
        EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
        EXPECT_NE(r->placement(), region_placement::automatic);
        return std::pair{r->placement(), r->placement_reason()};
    };
    const auto [fits, fits_why] = chosen(protection::read, {.device_bytes = 4 << 20});
    EXPECT_EQ(fits, region_placement::filled);
    EXPECT_EQ(fits_why, "its 4 MiB fit in the device memory that it may use, 4 MiB");
    const auto [large, large_why] = chosen(protection::read, {.device_bytes = 2 << 20});
    EXPECT_EQ(large, region_placement::in_place);
    EXPECT_EQ(large_why, "its 4 MiB do not fit in the 2 MiB of device memory that it may use");
    EXPECT_EQ(log_, "region of '" + path_ + "': in place, because " + large_why + "\n");
    const auto [written, written_why] = chosen(protection::read_write, {.device_bytes = 2 << 20});
    EXPECT_EQ(written, region_placement::filled);
    EXPECT_EQ(written_why, "it is written");
    const auto [hot, hot_why] =
        chosen(protection::read, {.device_bytes = 2 << 20, .promote_hot = true});
    EXPECT_EQ(hot, region_placement::filled);
    EXPECT_EQ(hot_why, "promote_hot is set");
}

INSTANTIATE_TEST_SUITE_P(backends, in_place, testing::Values(backend::cpu, backend::gpu),
                         [](const auto& i) { return i.param == backend::gpu ? "gpu" : "cpu"; });

TEST(in_place_on_cpu, system_is_the_same_mapping) {
    const temporary_folder folder;
    write_file(folder / "f", pattern(7, 100000));
    const auto rt = make_runtime(region_runtime(folder, backend::cpu));
    const auto r =
        map_whole(*rt, folder / "f", protection::read, {.placement = region_placement::system});
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->placement(), region_placement::system);
    EXPECT_EQ(peek(*r, backend::cpu, 0, 100000), pattern(7, 100000));
    EXPECT_EQ(r->acquire(), 0);
}

TEST(in_place_on_cpu, a_child_of_fork_is_refused_and_the_parent_goes_on) {
    const temporary_folder folder;
    write_file(folder / "f", pattern(7, 100000));
    const auto rt = make_runtime(region_runtime(folder, backend::cpu));
    auto r = map_whole(*rt, folder / "f", protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool all = r->acquire() == -ECHILD && r->release() == -ECHILD &&
                         r->sync() == -ECHILD && r->prefer(0, 1) == -ECHILD &&
                         r->close() == -ECHILD && r->traffic().bytes_registered == 0;
        r.reset();
        ::_exit(all ? 0 : 1);
    }
    int ended = 1;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(peek(*r, backend::cpu, 0, 100000), pattern(7, 100000));
    EXPECT_EQ(r->close(), 0);
}

namespace {

struct faulty_files {
    const temporary_folder folder;
    fault::faulty_environment env;
    std::string log;
    std::unique_ptr<runtime> rt;

    faulty_files() {
        write_file(folder / "f", pattern(7, 1 << 20));
        let_files_settle();
        host::runtime_hooks hooks;
        hooks.env = &env;
        options o = region_runtime(folder, backend::cpu);
        o.log = [this](const std::string& line) { log += line + "\n"; };
        rt = make_runtime(o, hooks);
    }
    status map(const region_options& settings, std::unique_ptr<file_region>& out) {
        return map_region(*rt, folder / "f", 0, 0, protection::read, settings, out);
    }
};

}  // namespace

TEST(in_place_faults, a_mapping_that_is_refused_is_an_error_and_automatic_fills) {
    faulty_files f;
    const int handles = f.env.handles();
    std::unique_ptr<file_region> r;
    f.env.set({.calls = fault::call_map, .nth = 1, .for_ever = true, .error = -ENODEV});
    const status s = f.map(at_its_place, r);
    EXPECT_EQ(s.code, -ENODEV);
    EXPECT_NE(s.message.find("placement at filled"), std::string::npos) << s.message;
    EXPECT_EQ(f.env.handles(), handles);
    const status filled =
        f.map({.device_bytes = 4096, .placement = region_placement::automatic}, r);
    ASSERT_TRUE(filled.ok()) << filled.message;
    EXPECT_EQ(r->placement(), region_placement::filled);
    EXPECT_NE(r->placement_reason().find("in place failed"), std::string::npos);
    EXPECT_NE(f.log.find(r->placement_reason()), std::string::npos) << f.log;
    EXPECT_EQ(peek(*r, backend::cpu, 0, 1 << 20), pattern(7, 1 << 20));
}

TEST(in_place_faults, automatic_tries_system_where_in_place_fails) {
    faulty_files f;
    std::unique_ptr<file_region> r;
    f.env.set({.calls = fault::call_map, .nth = 1, .error = -ENOMEM});
    const status s = f.map({.device_bytes = 4096, .placement = region_placement::automatic}, r);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(r->placement(), region_placement::system);
    EXPECT_NE(r->placement_reason().find("in place failed"), std::string::npos);
    EXPECT_EQ(peek(*r, backend::cpu, 0, 1 << 20), pattern(7, 1 << 20));
}

TEST(in_place_faults, a_size_that_cannot_be_asked_for_fails_that_acquire_alone) {
    faulty_files f;
    std::unique_ptr<file_region> r;
    ASSERT_TRUE(f.map(at_its_place, r).ok());
    f.env.set({.calls = fault::call_facts, .nth = 1, .error = -EIO});
    EXPECT_EQ(r->acquire(), -EIO);
    EXPECT_NE(f.log.find("tries again"), std::string::npos) << f.log;
    EXPECT_EQ(r->acquire(), 0);
}

TEST(in_place_faults, a_file_that_other_machines_change_is_refused_unless_no_program_writes_it) {
    faulty_files f;
    f.env.say_changes_elsewhere();
    std::unique_ptr<file_region> r;
    const status s = f.map(at_its_place, r);
    EXPECT_EQ(s.code, -EOPNOTSUPP);
    EXPECT_NE(s.message.find("outside_writers"), std::string::npos) << s.message;
    EXPECT_TRUE(f.map({.outside_writers = false, .placement = region_placement::in_place}, r).ok());
    EXPECT_EQ(r->placement(), region_placement::in_place);
    ASSERT_TRUE(f.map({.device_bytes = 4096, .placement = region_placement::automatic}, r).ok());
    EXPECT_EQ(r->placement(), region_placement::filled);
}

namespace {

// A kernel that keeps what programs stored until it is asked for it.
class late_stores final : public host::program_views {
public:
    explicit late_stores(std::string path) : path_(std::move(path)) {}
    int collect(const host::file_key&) override {
        if (fails) return -EIO;
        patch_file(path_, 4000, {42});
        return 0;
    }
    int take_away(const host::file_key&, std::uint64_t, std::uint64_t) override { return 0; }
    bool fails = false;

private:
    const std::string path_;
};

}  // namespace

TEST(in_place_mounts, an_acquire_brings_what_programs_stored_through_a_mount) {
    const temporary_folder folder;
    write_file(folder / "f", pattern(7, 100000));
    host::hub shared;
    host::runtime_hooks hooks;
    hooks.shared = &shared;
    const auto rt = make_runtime(region_runtime(folder, backend::cpu), hooks);
    const auto r = map_whole(*rt, folder / "f", protection::read, at_its_place);
    ASSERT_NE(r, nullptr);
    const auto views = std::make_shared<late_stores>(folder / "f");
    shared.add_views(views);
    EXPECT_EQ(peek(*r, backend::cpu, 4000, 1), bytes{pattern_byte(7, 4000)});
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(peek(*r, backend::cpu, 4000, 1), bytes{42});
    views->fails = true;
    EXPECT_EQ(r->acquire(), -EIO);
    shared.remove_views(*views);
}

}  // namespace penstock::test
