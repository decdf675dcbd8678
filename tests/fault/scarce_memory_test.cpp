// The library without memory of the host: calls say so and leave all as it was, and no exception
// that a thread of the library has ends the program.
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <thread>

#include "fault/scenario.hpp"
#include "files/extent_allocator.hpp"
#include "hub/hub.hpp"
#include "penstock/table.hpp"
#include "runtime/late_line.hpp"
#include "soon.hpp"
#include "unit/parts_in_memory.hpp"

namespace {

// Of this thread, from `first_refused` on; 0: none.
thread_local std::uint64_t allocations = 0, first_refused = 0, last_refused = 0;
// And of all threads of this name.
std::atomic<const char*> refused_name{nullptr};
std::atomic<int> refusals{0};
std::atomic<int> refusals_left{0};  // of these threads

bool is_refused() {
    if (first_refused != 0) {
        ++allocations;
        return allocations >= first_refused && allocations <= last_refused;
    }
    const char* const refused = refused_name;
    if (refused == nullptr) return false;
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    if (std::strcmp(name, refused) != 0 || refusals_left-- <= 0) return false;
    ++refusals;
    return true;
}

}  // namespace

// In place of the C++ library's.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    void* const out = is_refused() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
    if (out == nullptr) throw std::bad_alloc();
    return out;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace penstock::fault {

namespace {

constexpr int for_ever = 1 << 30;

// Threads of this name get no memory, so many times.
class no_memory_of {
public:
    explicit no_memory_of(const char* name, int times = for_ever) {
        refusals = 0;
        refusals_left = times;
        refused_name = name;
    }
    ~no_memory_of() { refused_name = nullptr; }
    no_memory_of(const no_memory_of&) = delete;
    no_memory_of& operator=(const no_memory_of&) = delete;
};

// The call, without memory from this thread's `first` allocation on up to the `last`. False: it
// made fewer.
template <typename Call>
bool was_refused(std::uint64_t first, std::uint64_t last, const Call& call) {
    allocations = 0;
    last_refused = last;
    first_refused = first;
    try {
        call();
    } catch (...) {
        first_refused = 0;
        throw;
    }
    first_refused = 0;
    return allocations >= first;
}

// The call without one of its allocations, then without all from that on, for each.
template <typename Call>
void refuse_each(const Call& call) {
    std::uint64_t count = 0;
    for (const bool one : {true, false})
        for (std::uint64_t n = 1; was_refused(n, one ? n : ~std::uint64_t{0}, call); ++n) {
            ++count;
            ASSERT_FALSE(testing::Test::HasFailure()) << n << (one ? " alone" : " and on");
            ASSERT_LT(count, 100'000u);
        }
    EXPECT_GT(count, 0u);
}

}  // namespace

// It has no memory for the line about a dead service thread. Waits of groups end all the same.
TEST(monitor, beats_on_without_memory) {
    const sample_folder from;
    faulty_environment disk;
    const auto rt = test::make_runtime(tiny_options(from, io_method::automatic), tiny_hooks(disk));
    const auto heartbeat = [&] {
        return atomic_load<order::relaxed, scope::system>(&rt->state(0).control->heartbeat);
    };
    {
        const no_memory_of beats("penstock-beat");
        rt->state(0).services[0]->kill();
        EXPECT_TRUE(soon([&] { return refusals > 0; }));
        const std::uint64_t before = heartbeat();
        EXPECT_TRUE(soon([&] { return heartbeat() > before + 2; }));
        EXPECT_TRUE(soon([&] { return open(lane{}, rt->ref(), "f0") == -ESHUTDOWN; }));
    }
    EXPECT_TRUE(soon([&] { return rt->health().code == -ESHUTDOWN; }));
}

TEST(monitor, a_late_line_that_cannot_be_said_ends_no_program) {
    std::atomic<bool> tried{false};
    const host::late_line waiting("a line", std::chrono::milliseconds(0), [&](const std::string&) {
        tried = true;
        throw std::bad_alloc();
    });
    EXPECT_TRUE(soon([&] { return tried.load(); }));
}

TEST(scarce_memory, a_file_that_could_not_be_noted_counts_as_known) {
    host::hub shared;
    const host::file_key noted{1, 2}, lost{3, 4};
    shared.known.add(noted);
    EXPECT_FALSE(shared.known.may_have(lost));
    EXPECT_TRUE(was_refused(1, 1, [&] { shared.known.add(lost); }));
    EXPECT_TRUE(shared.known.may_have(lost));
    shared.known.remove(lost);
    EXPECT_TRUE(shared.known.may_have(noted));
}

// The monitor finds it dead. No group waits for ever, and other runtimes go on.
TEST(scarce_memory, a_service_thread_without_memory_ends_its_runtime) {
    const sample_folder from;
    faulty_environment disk;
    const options o = tiny_options(from, io_method::automatic);
    const auto other = test::make_runtime(o, tiny_hooks(disk));
    const auto rt = test::make_runtime(o, tiny_hooks(disk));
    {
        const no_memory_of serves("penstock-serve", 1);
        EXPECT_EQ(rt->open("f0"), -ESHUTDOWN);
    }
    EXPECT_TRUE(soon([&] { return rt->health().code == -ESHUTDOWN; }));
    EXPECT_GE(other->open("f0"), 0);
}

// What was taken can be given back without memory, whatever lies around it.
TEST(scarce_memory, pieces_go_back_to_an_allocator) {
    constexpr std::uint64_t units = 400;
    host::extent_allocator pieces(units);
    std::map<std::uint64_t, std::uint64_t> taken;
    std::uint64_t left = units;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
        const std::uint64_t wanted = 1 + mix64(i) % 9;
        if (mix64(i ^ 77) % 2 == 0 || taken.empty()) {
            std::optional<std::uint64_t> start;
            const std::size_t before = pieces.free_pieces();
            try {
                was_refused(1 + mix64(i) % 3, ~std::uint64_t{0},
                            [&] { start = pieces.take(wanted); });
            } catch (const std::bad_alloc&) {
                EXPECT_EQ(pieces.free_pieces(), before);
                start = pieces.take(wanted);
            }
            if (!start) continue;
            taken[*start] = wanted;
            left -= wanted;
        } else {
            auto gone = taken.lower_bound(mix64(i + 1) % units);
            if (gone == taken.end()) gone = taken.begin();
            bool given = false;
            ASSERT_NO_THROW(was_refused(1, ~std::uint64_t{0}, [&] {
                given = pieces.give(gone->first, gone->second);
            })) << i;
            ASSERT_TRUE(given);
            left += gone->second;
            taken.erase(gone);
        }
        ASSERT_EQ(pieces.free_units(), left) << i;
    }
}

// By each allocation of the calling thread that there is no memory for. Afterwards the same call
// does what it should.
class calls_without_memory : public testing::Test {
protected:
    static constexpr std::uint64_t row = 512;
    calls_without_memory() {
        test::write_file(path, bytes);
        test::let_files_settle();
        o = test::small_options(folder, 1);
        o.writable = true;
        o.request_wait_ms = 600'000;
    }
    void make() {
        env.allow_leases();
        host::runtime_hooks hooks;
        hooks.env = &env;
        rt = test::make_runtime(o, hooks);
    }
    void TearDown() override {
        rt.reset();
        EXPECT_EQ(env.handles(), 0);
    }
    // `call` gives a code or a count; `good`: what it gives with memory.
    template <typename Call>
    void expect_no_memory(const char* name, const Call& call, std::int64_t good) {
        std::uint64_t failed = 0;
        refuse_each([&] {
            const std::int64_t code = call();
            failed += code == -ENOMEM ? 1 : 0;
            if (code == good || code == -ENOMEM) return;
            first_refused = 0;
            ADD_FAILURE() << name << " gives " << code;
        });
        EXPECT_GT(failed, 0u) << name;
        EXPECT_EQ(call(), good) << name;
        EXPECT_TRUE(rt->health().ok());
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    const std::vector<std::uint8_t> bytes = test::pattern(4, 64 * page);
    faulty_environment env;
    options o;
    std::unique_ptr<runtime> rt;
};

TEST_F(calls_without_memory, of_open_and_gather) {
    make();
    const int fd = rt->open(path);
    const auto open = [&] {
        const int also = rt->open(path);
        return also < 0 ? also : rt->close(also);
    };
    expect_no_memory("open", open, 0);
    const auto open_everywhere = [&] {
        const shared_file file = rt->open_everywhere(path);
        return file.code() != 0 ? file.code() : rt->close(file);
    };
    expect_no_memory("open everywhere", open_everywhere, 0);
    expect_no_memory(
        "allow", [&] { return rt->allow(path); }, 0);
    std::vector<std::uint64_t> numbers(100);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = mix64(i) % (bytes.size() / row);
    std::vector<std::uint8_t> got(numbers.size() * row);
    gather_options by_span;
    by_span.order = gather_order::by_span;
    const auto gather = [&] {
        return rt->gather(fd, {.row_bytes = row}, numbers.data(), numbers.size(), got.data(),
                          by_span);
    };
    expect_no_memory("gather", gather, static_cast<std::int64_t>(numbers.size()));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        EXPECT_EQ(std::memcmp(&got[i * row], &bytes[numbers[i] * row], row), 0);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(calls_without_memory, of_prefetch) {
    make();
    const shared_file file = rt->open_everywhere(path);
    ASSERT_EQ(file.code(), 0);
    const auto all = static_cast<std::int64_t>(bytes.size());
    expect_no_memory(
        "prefetch", [&] { return rt->prefetch(file); }, all);
    EXPECT_EQ(rt->close(file), 0);
}

TEST_F(calls_without_memory, of_names) {
    make();
    const std::string from = folder / "gone", to = folder / "there";
    test::write_file(from, bytes);
    expect_no_memory(
        "allow", [&] { return rt->allow(from); }, 0);
    refuse_each([&] {
        const int code = rt->rename(from, to);
        first_refused = 0;
        EXPECT_TRUE(code == 0 || code == -ENOMEM) << code;
        // What is noted of it afterwards may need memory too.
        const bool is_there = std::filesystem::exists(to);
        EXPECT_EQ(is_there ? rt->rename(to, from) : 0, 0);
    });
    refuse_each([&] {
        const int code = rt->unlink(from);
        first_refused = 0;
        EXPECT_TRUE(code == 0 || code == -ENOMEM) << code;
        EXPECT_EQ(std::filesystem::exists(from), code != 0);
        test::write_file(from, bytes);
    });
}

// The end of a table too, which can say nothing.
TEST_F(calls_without_memory, of_tables) {
    test::parts_in_memory in_memory;
    in_memory.bring_in(path);
    make();
    table_layout layout{.row_bytes = row};
    layout.pieces.push_back({path, 0, 10});
    layout.pieces.push_back({path, 10 * row, 20});
    const std::int32_t numbers[] = {1, 12, 29};
    std::vector<std::uint8_t> got(3 * row);
    std::uint64_t failed = 0;
    refuse_each([&] {
        std::unique_ptr<table> rows;
        status s = table::make(*rt, layout, {}, rows);
        if (s.ok()) rows->open_windows();
        const int code = s.ok() ? rows->gather(numbers, 3, got.data()) : 0;
        const status noted = s.ok() ? rows->check() : status{};
        rows.reset();
        first_refused = 0;
        EXPECT_TRUE(s.ok() || s.code == -ENOMEM) << s.message;
        EXPECT_TRUE(code == 0 || code == -ENOMEM) << code;
        failed += s.code == -ENOMEM ? 1 : 0;
    });
    EXPECT_GT(failed, 0u);
    EXPECT_EQ(rt->stats().window_bytes, 0u) << "a window is left";
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    EXPECT_EQ(rows->gather(numbers, 3, got.data()), 0);
    EXPECT_TRUE(rows->check().ok());
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(
            std::memcmp(&got[i * row], &bytes[static_cast<std::size_t>(numbers[i]) * row], row), 0);
}

TEST_F(calls_without_memory, of_a_new_runtime) {
    std::uint64_t failed = 0;
    refuse_each([&] {
        std::unique_ptr<runtime> made;
        const status s = runtime::make(o, made);
        failed += s.code == -ENOMEM;
        if ((s.ok() && made != nullptr) || (s.code == -ENOMEM && made == nullptr)) return;
        first_refused = 0;
        ADD_FAILURE() << s.code << s.message;
    });
    EXPECT_GT(failed, 0u);
    make();
}

}  // namespace penstock::fault
