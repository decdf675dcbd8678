// Windows of files that nothing can watch: there are none.
#include <sys/resource.h>

#include <cerrno>

#include "fault/scenario.hpp"
#include "penstock/engine/window.hpp"
#include "service/windows.hpp"
#include "unit/parts_in_memory.hpp"

namespace penstock::fault {

namespace {

constexpr std::uint64_t chunk = engine::window_chunk_bytes, size = chunk + 5000;

// One file whose pages are in memory.
class windowed_file : public testing::Test {
protected:
    windowed_file() {
        test::write_file(path, test::pattern(3, size));
        in_memory.bring_in(path);
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    test::parts_in_memory in_memory;
};

// A set of its own, in which the same file may have many windows.
class window_sets : public windowed_file {
protected:
    static constexpr std::uint32_t slots = 64;

    window_sets() {
        view.windows = words.data();
        view.window_chunks = chunks.data();
        env.allow_leases();
        const int found = env.find(-1, path);
        fd = env.open_found(found);
        env.close(found);
    }
    ~window_sets() override { env.close(fd); }
    void make(std::size_t sets = 1) {
        set = std::make_unique<host::window_set>(
            env, *device, view, chunks.size(),
            host::window_rules{
                .runs = std::make_shared<host::window_runs>(env, *device, 1, slots * size),
                .sets = sets});
    }
    std::int64_t open_in(std::uint32_t slot) {
        return set->open({slot, 1, fd, size}, 0, size, note);
    }
    std::uint32_t windows_until_refused() {
        for (std::uint32_t slot = 0; slot < slots; ++slot)
            if (open_in(slot) != static_cast<std::int64_t>(size)) return slot;
        return slots;
    }

    faulty_environment env;
    const std::unique_ptr<host::cache_device> device = host::make_cpu_device();
    std::array<std::uint64_t, slots> words{};
    std::array<std::uint64_t, 4 * slots> chunks{};
    engine::cache_view view{};
    int fd = -1;
    std::string note;
    std::unique_ptr<host::window_set> set;
};

class limit_on_handles {
public:
    explicit limit_on_handles(rlim_t handles) {
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit less{handles, before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &less), 0);
    }
    ~limit_on_handles() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
    limit_on_handles(const limit_on_handles&) = delete;
    limit_on_handles& operator=(const limit_on_handles&) = delete;

private:
    rlimit before_{};
};

}  // namespace

// Else a kernel would go on with old bytes after a cut that no look finds.
TEST_F(window_sets, a_file_that_cannot_be_watched_has_no_window) {
    make();
    env.set({.calls = call_open_found, .nth = 1, .for_ever = true, .error = -EMFILE});
    EXPECT_EQ(open_in(5), -EMFILE);
    EXPECT_NE(note.find("ulimit -n"), std::string::npos) << note;
    EXPECT_EQ(words[5], 0u);
    ASSERT_EQ(::truncate(path.c_str(), size / 2), 0);
    set->watch();
    EXPECT_EQ(set->open_files(), 0u);
    env.clear();
    ASSERT_EQ(::truncate(path.c_str(), size), 0);
    in_memory.bring_in(path);
    EXPECT_EQ(open_in(5), static_cast<std::int64_t>(size));
}

TEST_F(window_sets, of_more_files_than_have_handles_there_are_none) {
    const limit_on_handles limit(256);
    make();
    EXPECT_EQ(windows_until_refused(), 256u / 8);
    EXPECT_EQ(set->open_files(), 256u / 8);
    EXPECT_EQ(open_in(0), static_cast<std::int64_t>(size)) << "it has its handle";
    set->close_all();
    EXPECT_EQ(open_in(40), static_cast<std::int64_t>(size)) << "handles were given back";
}

TEST_F(window_sets, of_several_devices_share_the_handles) {
    const limit_on_handles limit(256);
    make(4);
    EXPECT_EQ(windows_until_refused(), 256u / 8 / 4);
}

}  // namespace penstock::fault
