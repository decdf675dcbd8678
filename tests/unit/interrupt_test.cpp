// An interrupt ends kernels that never wait: whatever a group does, one of its next calls gives
// -ECANCELED, until resume.
#include <atomic>
#include <functional>
#include <numeric>

#include "os/came_signal.hpp"
#include "penstock/group/racing_lane.hpp"
#include "penstock/table.hpp"
#include "penstock/view.hpp"
#include "soon.hpp"
#include "unit/parts_in_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::int64_t read_bytes = 4096, pages = 512, cached = 16;

// Does the same again and again until it gets an error, or for half a minute: far longer than any
// interrupt takes.
class ends_by_interrupt : public testing::Test {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt;
    int fd = -1;

    void SetUp() override {
        write_file(folder / "data", pattern(1, pages * read_bytes));
        options o = small_options(folder);
        o.writable = true;
        o.window_bytes = 64 << 20;
        host::runtime_hooks hooks;
        hooks.windows_on_cpu = true;
        rt = make_runtime(o, hooks);
        fd = rt->open(folder / "data", open_read_write);
        ASSERT_GE(fd, 0);
    }
    template <typename Call>
    static std::int64_t repeat(std::atomic<std::uint64_t>& calls, const Call& call) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        for (std::uint64_t i = 0; std::chrono::steady_clock::now() < end; ++i) {
            const std::int64_t code = call(i);
            if (code < 0) return code;
            ++calls;
        }
        return 0;
    }
    // `call(i)` is made over and over by a thread, and works until the interrupt.
    void expect_end(const std::function<std::int64_t(std::uint64_t)>& call) {
        std::atomic<std::uint64_t> calls{0};
        std::atomic<std::int64_t> code{1};
        std::thread group([&] { code = repeat(calls, call); });
        while (calls < 100 && code == 1) std::this_thread::yield();
        rt->interrupt();
        group.join();
        EXPECT_EQ(code, -ECANCELED);
        rt->resume();
        EXPECT_GE(call(0), 0) << "after resume";
    }
    [[nodiscard]] runtime_ref fs() const { return rt->ref(); }
};

}  // namespace

TEST_F(ends_by_interrupt, reads_of_cached_pages) {
    std::vector<std::byte> to(read_bytes);
    expect_end([&](std::uint64_t i) {
        return read(lane{}, fs(), fd, to.data(), read_bytes,
                    static_cast<std::int64_t>(i) % cached * read_bytes);
    });
    expect_end([&](std::uint64_t i) {
        return read(racing_lane{}, fs(), fd, to.data(), read_bytes,
                    static_cast<std::int64_t>(i) % cached * read_bytes);
    });
}

TEST_F(ends_by_interrupt, reads_that_are_answered_at_once) {
    std::vector<std::byte> to(read_bytes);
    expect_end([&](std::uint64_t i) {
        return read(lane{}, fs(), fd, to.data(), read_bytes,
                    static_cast<std::int64_t>(i * 7) % pages * read_bytes);
    });
}

TEST_F(ends_by_interrupt, reads_through_windows) {
    write_file(folder / "other", pattern(2, pages * read_bytes));
    parts_in_memory in_memory;
    in_memory.bring_in(folder / "other");
    const int reading = rt->open("other");
    ASSERT_GT(rt->open_windows(reading), 0);
    std::vector<std::byte> to(read_bytes);
    expect_end([&](std::uint64_t i) {
        return read(lane{}, fs(), reading, to.data(), read_bytes,
                    static_cast<std::int64_t>(i * 7) % pages * read_bytes);
    });
}

TEST_F(ends_by_interrupt, maps_of_cached_pages) {
    expect_end([&](std::uint64_t i) {
        const mapping result =
            map(lane{}, fs(), fd, static_cast<std::int64_t>(i) % cached * read_bytes, read_bytes);
        return result.bytes < 0 ? result.bytes : unmap(lane{}, fs(), result);
    });
}

TEST_F(ends_by_interrupt, writes_to_cached_pages) {
    expect_end([&](std::uint64_t i) {
        return write(lane{}, fs(), fd, "x", 1, static_cast<std::int64_t>(i) % cached * read_bytes);
    });
    expect_end([&](std::uint64_t i) {
        const writable_mapping result = map_write(
            lane{}, fs(), fd, static_cast<std::int64_t>(i) % cached * read_bytes, read_bytes);
        return result.bytes < 0 ? result.bytes : unmap(lane{}, fs(), result);
    });
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(ends_by_interrupt, opens_of_an_open_file) {
    expect_end([&](std::uint64_t) -> std::int64_t {
        const int handle = open(lane{}, fs(), (folder / "data").c_str());
        return handle < 0 ? handle : close(lane{}, fs(), handle);
    });
}

TEST_F(ends_by_interrupt, gathers_of_cached_rows) {
    const runtime_ref ref = fs();
    const row_view rows(ref, fd, {.row_bytes = 512});
    std::vector<std::uint64_t> indices(64);
    std::iota(indices.begin(), indices.end(), 0);
    std::vector<std::byte> to(indices.size() * 512);
    expect_end([&](std::uint64_t) {
        return gather(lane{}, rows, indices.data(), indices.size(), to.data());
    });
    EXPECT_EQ(rt->view_status().code, -ECANCELED);
}

// The program went on after its own interrupt, and then comes Ctrl-C (interrupt_on_signals).
TEST_F(ends_by_interrupt, a_signal_after_a_resume) {
    rt->interrupt();
    rt->resume();
    std::byte to{};
    ASSERT_EQ(read(lane{}, fs(), fd, &to, 1, 0), 1);
    host::signal_came = true;
    EXPECT_TRUE(soon([&] { return read(lane{}, fs(), fd, &to, 1, 0) == -ECANCELED; }));
    host::signal_came = false;
    rt->resume();
    EXPECT_EQ(read(lane{}, fs(), fd, &to, 1, 0), 1);
}

// Rows that would come past the cache, by a system call or from a window.
TEST_F(ends_by_interrupt, gathers_of_a_table) {
    write_file(folder / "rows", pattern(3, pages * read_bytes));
    let_files_settle();
    table_layout layout{.row_bytes = 512};
    layout.pieces.push_back({folder / "rows", 0, pages * read_bytes / 512});
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    const std::int32_t number = 7;
    std::vector<std::byte> to(512);
    parts_in_memory in_memory;
    for (const bool from_window : {false, true}) {
        if (from_window) {
            in_memory.bring_in(folder / "rows");
            rows->open_windows();  // without leases there is none, and it is as before
        }
        rt->interrupt();
        EXPECT_EQ(rows->gather(&number, 1, to.data()), 0);
        EXPECT_EQ(rows->check().code, -ECANCELED) << from_window;
        rt->resume();
        EXPECT_EQ(rows->gather(&number, 1, to.data()), 0);
        EXPECT_TRUE(rows->check().ok());
    }
}

// Descriptors and mappings can be given back, and what was written before the interrupt gets to the
// file in the end.
TEST_F(ends_by_interrupt, closing_goes_on) {
    ASSERT_EQ(rt->write(fd, "written", 7, 0), 7);
    const mapping held = map(lane{}, fs(), fd, read_bytes, read_bytes);
    rt->interrupt();
    EXPECT_EQ(unmap(lane{}, fs(), held), 0);
    const int closed = rt->close(fd);
    EXPECT_TRUE(closed == 0 || closed == -ECANCELED)
        << "as long as the disk took: " << error_text(closed);
    EXPECT_EQ(rt->close(fd), -EBADF);
    rt.reset();
    std::ifstream in(folder / "data");
    std::string begin(7, ' ');
    in.read(begin.data(), 7);
    EXPECT_EQ(begin, "written");
}

}  // namespace penstock::test
