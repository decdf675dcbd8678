// What workers of blocks ask a store, counted: a store of the test's own, which holds an answer
// back, or fails, when it is told to.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "fault/faulty_environment.hpp"
#include "os/file_system.hpp"
#include "soon.hpp"
#include "store/block_reader.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

// Behind the store objects of all workers.
struct common_store {
    std::mutex mutex;  // guards everything below
    std::condition_variable changed;
    std::map<host::block_key, std::vector<std::byte>> objects;
    std::map<host::block_key, int> gets;
    int gets_that_read = 0;  // of them those that read the file if the store does not have it
    std::vector<std::uint64_t> waits;  // of each get and put, in ns
    host::block_key held{};            // gets of this key wait
    bool is_held = false, fails = false;
    int waiting = 0;
};

class counted_store final : public host::block_store {
public:
    explicit counted_store(common_store& common) : common_(common) {}

    std::int64_t get(const host::block_key& key, std::span<std::byte> to, std::uint64_t longest_ns,
                     bool reads_file) override {
        std::unique_lock lock(common_.mutex);
        ++common_.gets[key];
        common_.gets_that_read += reads_file ? 1 : 0;
        common_.waits.push_back(longest_ns);
        ++common_.waiting;
        common_.changed.notify_all();
        common_.changed.wait(lock, [&] { return !common_.is_held || common_.held != key; });
        --common_.waiting;
        if (common_.fails) return -ETIMEDOUT;
        const auto found = common_.objects.find(key);
        if (found == common_.objects.end()) return -ENOENT;
        std::copy(found->second.begin(), found->second.end(), to.begin());
        return static_cast<std::int64_t>(found->second.size());
    }
    int put(const host::block_key& key, std::span<const std::byte> from, bool,
            std::uint64_t longest_ns) override {
        const std::lock_guard lock(common_.mutex);
        common_.waits.push_back(longest_ns);
        if (common_.fails) return -ETIMEDOUT;
        common_.objects[key].assign(from.begin(), from.end());
        return 0;
    }

private:
    common_store& common_;
};

// All files have the change time that the test says, as of changes within one tick of the clock.
class one_tick final : public fault::faulty_environment {
public:
    int facts(int handle, host::file_facts& out) override {
        const int code = faulty_environment::facts(handle, out);
        if (const std::int64_t tick = tick_ns; tick != 0) out.identity.changed_ns = tick;
        out.has_number_for_all = has_numbers_for_all;
        return code;
    }
    bool changes_elsewhere(int fd) override {
        ++asked_where;
        return faulty_environment::changes_elsewhere(fd);
    }
    int real_path(int handle, std::string& out) override {
        if (before_path) std::exchange(before_path, nullptr)();
        const int code = faulty_environment::real_path(handle, out);
        if (after_path) std::exchange(after_path, nullptr)();
        return code;
    }

    void close(int handle) override {
        if (before_close) std::exchange(before_close, nullptr)();
        faulty_environment::close(handle);
    }

    std::atomic<std::int64_t> tick_ns{0};  // 0: as the file system says
    std::atomic<bool> has_numbers_for_all{false};
    std::atomic<int> asked_where{0};
    std::function<void()> before_path, after_path;  // once, around a question for a path
    std::function<void()> before_close;             // once
};

class block_readers : public testing::Test {
protected:
    using block_fetch = host::block_fetch;
    using state = block_fetch::state;
    static constexpr std::uint64_t block_bytes = host::block_bytes, blocks = 6,
                                   wait_ns = 60'000'000'000;

    block_readers() : bytes(pattern(41, blocks * block_bytes)) {
        write_file(folder / "data", bytes);
        let_files_settle();
        env.say_cached(0);
        open("data");
    }
    // The file that is fetched from now on, in the version that it has now.
    void open(const std::string& name) {
        const int found = env.find(-1, folder / name), fd = env.open_found(found);
        env.close(found);
        file = std::make_shared<host::shared_handle>(env, fd);
        host::file_facts facts;
        EXPECT_EQ(env.facts(fd, facts), 0);
        version = facts.identity;
    }
    void start() {
        host::block_settings settings;
        settings.local_files = true;
        settings.wait_ns = wait_ns;
        settings.pause_ns = pause_ns;
        settings.most_blocks = most_blocks;
        reader = std::make_unique<host::block_reader>(
            env, settings, [this] { return std::make_unique<counted_store>(store); });
    }
    std::shared_ptr<block_fetch> fetch(std::uint64_t number, bool is_settled = true) {
        return reader->fetch(file, version, is_settled, number);
    }
    state end_of(const std::shared_ptr<block_fetch>& fetched) {
        while (fetched->look() == state::under_way) std::this_thread::yield();
        return fetched->look();
    }
    host::block_key key(std::uint64_t number, const std::string& name = "data") const {
        return host::key_of({"", host::place_in_file_system(folder / name).path, "",
                             version.size_bytes, version.modified_ns, version.changed_ns},
                            number);
    }
    // The workers bring block 3 ahead, and the store does not answer.
    void bring_third_ahead() {
        for (const std::uint64_t number : {0, 1}) ASSERT_EQ(end_of(fetch(number)), state::there);
        {
            const std::lock_guard lock(store.mutex);
            store.held = key(3);
            store.is_held = true;
        }
        ASSERT_EQ(end_of(fetch(2)), state::there);
        std::unique_lock lock(store.mutex);
        store.changed.wait(lock, [this] { return store.gets[key(3)] == 1 && store.waiting == 1; });
    }
    void let_fail(bool fails) {
        const std::lock_guard lock(store.mutex);
        store.fails = fails;
    }
    void release() {
        const std::lock_guard lock(store.mutex);
        store.is_held = false;
        store.changed.notify_all();
    }

    // Whose bytes has an object? 'd', 'n' of the two files below, or 0.
    static char owner_of(std::span<const std::byte> block) {
        if (block.size() < 2) return 0;
        const auto begins_as = [&](const std::vector<std::uint8_t>& of) {
            return std::memcmp(block.data(), of.data(), block_bytes) == 0;
        };
        return begins_as(pattern(41, block_bytes))   ? 'd'
               : begins_as(pattern(42, block_bytes)) ? 'n'
                                                     : 0;
    }

    const temporary_folder folder;
    const std::vector<std::uint8_t> bytes;
    one_tick env;
    std::shared_ptr<host::shared_handle> file;
    host::file_identity version;
    std::uint64_t pause_ns = 600'000'000'000;
    std::uint32_t most_blocks = 32;
    common_store store;
    std::unique_ptr<host::block_reader> reader;
};

// A second file that differs from the first in its name and its bytes alone: no fact of them does.
class exchanged_names : public block_readers {
protected:
    exchanged_names() {
        write_file(folder / "next", pattern(42, blocks * block_bytes));
        const timespec times[2] = {{1'700'000'000, 0}, {1'700'000'000, 0}};
        for (const char* name : {"data", "next"})
            EXPECT_EQ(::utimensat(AT_FDCWD, (folder / name).c_str(), times, 0), 0);
        let_files_settle();
        env.tick_ns = 1'700'000'000'000'000'000;
        open("data");
        start();
    }
    void exchange() const {
        std::filesystem::rename(folder / "data", folder / "third");
        std::filesystem::rename(folder / "next", folder / "data");
        std::filesystem::rename(folder / "third", folder / "next");
    }
    void exchange_in_another_tick() {
        exchange();
        env.tick_ns += 1'000'000'000;
    }
    char owner_in_store(const host::block_key& of) {
        const std::lock_guard lock(store.mutex);
        return store.objects.contains(of) ? owner_of(store.objects[of]) : char{0};
    }
    // As another node puts it.
    void put(const host::block_key& of, std::uint64_t seed) {
        std::vector<std::byte> object(block_bytes + host::block_tail_bytes);
        const auto block = pattern(seed, block_bytes);
        std::memcpy(object.data(), block.data(), block.size());
        host::write_tail(object.data(), block_bytes, of);
        const std::lock_guard lock(store.mutex);
        store.objects[of] = object;
    }
};

}  // namespace

// Were the path that a file had in an older version used, "next" would put its bytes under the name
// that the other file has by now, for all nodes.
TEST_F(exchanged_names, a_block_has_the_path_that_its_file_has_in_this_version) {
    ASSERT_EQ(end_of(fetch(0)), state::there);
    exchange_in_another_tick();
    open("next");
    ASSERT_EQ(end_of(fetch(0)), state::there);
    reader.reset();  // after its puts
    EXPECT_EQ(owner_in_store(key(0, "data")), 0);
    EXPECT_EQ(owner_in_store(key(0, "next")), 'd');
    start();
    open("data");
    const auto read = fetch(0);
    ASSERT_EQ(end_of(read), state::there);
    EXPECT_EQ(owner_of(read->bytes()), 'n');
}

// There and back within a tick: no time tells that the name is not that of before.
TEST_F(exchanged_names, a_path_of_the_same_version_is_asked_for_again) {
    exchange();
    open("next");
    ASSERT_EQ(end_of(fetch(0)), state::there);
    exchange();
    open("data");
    ASSERT_EQ(end_of(fetch(1)), state::there);
    open("next");
    ASSERT_EQ(end_of(fetch(1)), state::there);
    reader.reset();
    ASSERT_TRUE(store.objects.contains(key(1, "data")));
    ASSERT_TRUE(store.objects.contains(key(1, "next")));
    const auto all = pattern(42, 2 * block_bytes);
    EXPECT_EQ(
        std::memcmp(store.objects[key(1, "data")].data(), bytes.data() + block_bytes, block_bytes),
        0);
    EXPECT_EQ(
        std::memcmp(store.objects[key(1, "next")].data(), all.data() + block_bytes, block_bytes),
        0);
}

// Directories that exchange their names leave their files as they were. Where the numbers of inodes
// are those of the server, blocks of the one are not taken for the other's.
TEST_F(exchanged_names, files_of_exchanged_directories_are_told_apart_by_their_numbers) {
    for (const bool has_numbers : {false, true}) {
        env.has_numbers_for_all = has_numbers;
        for (const auto& [directory, name] : {std::pair{"a", "data"}, std::pair{"b", "next"}}) {
            std::filesystem::create_directory(folder / directory);
            std::filesystem::rename(folder / name, std::string(folder / directory) + "/file");
        }
        open("a/file");
        ASSERT_EQ(end_of(fetch(0)), state::there);
        std::filesystem::rename(folder / "a", folder / "c");
        std::filesystem::rename(folder / "b", folder / "a");
        reader.reset();
        start();
        open("a/file");
        const auto read = fetch(0);
        ASSERT_EQ(end_of(read), state::there);
        // Without numbers nothing tells: docs/guide/limits.md.
        EXPECT_EQ(owner_of(read->bytes()), has_numbers ? 'n' : 'd');
        std::filesystem::rename(folder / "c/file", folder / "data");
        std::filesystem::rename(folder / "a/file", folder / "next");
        std::filesystem::remove(folder / "c");
        reader.reset();
        start();
    }
}

// The name is asked for after the facts. In between the file gets another one, under which the
// store has a block of the other file.
TEST_F(exchanged_names, a_path_that_the_version_never_had_gets_no_block) {
    put(key(0, "next"), 42);
    env.before_path = [this] { exchange_in_another_tick(); };
    const auto asked_before = fetch(0);
    EXPECT_EQ(end_of(asked_before), state::failed) << owner_of(asked_before->bytes());
    EXPECT_EQ(store.gets.size(), 0u);
}

// The file loses its name to another one that looks the same.
TEST_F(exchanged_names, a_path_that_leads_to_another_file_gets_no_block) {
    env.after_path = [this] { exchange(); };
    EXPECT_EQ(end_of(fetch(0)), state::failed);
    std::filesystem::rename(folder / "data", folder / "next");
    EXPECT_EQ(end_of(fetch(1)), state::failed);
    reader.reset();
    EXPECT_EQ(store.gets.size(), 0u);
}

// A file that has not rested may give its name to another one while the store is asked, and that
// one rest and be put.
TEST_F(exchanged_names, a_late_block_of_a_name_that_went_to_another_file_does_not_count) {
    {
        const std::lock_guard lock(store.mutex);
        store.held = key(0);
        store.is_held = true;
    }
    const auto asked_before = fetch(0, false);
    {
        std::unique_lock lock(store.mutex);
        store.changed.wait(lock, [this] { return store.waiting == 1; });
    }
    exchange();
    put(key(0), 42);
    release();
    EXPECT_EQ(end_of(asked_before), state::failed) << owner_of(asked_before->bytes());
}

// The reader asks for the block while the store has not answered the look ahead: it is read from
// the file once, by a worker, and put, so that the next node finds it.
// Each miss asks whether the store is for the file, and a server may have to tell.
TEST_F(block_readers, where_a_file_lies_is_asked_once) {
    start();
    host::block_settings of_far_files;
    const host::block_reader far(env, of_far_files,
                                 [this] { return std::make_unique<counted_store>(store); });
    EXPECT_FALSE(far.wants(*file, 0, 4096));
    open("data");
    env.say_changes_elsewhere();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(far.wants(*file, 0, 4096));
    EXPECT_EQ(env.asked_where, 2) << "once for each handle";
}

TEST_F(block_readers, a_block_that_is_asked_for_while_it_is_brought_ahead_is_put) {
    start();
    bring_third_ahead();
    const auto wanted = fetch(3);
    ASSERT_NE(wanted, nullptr);
    release();
    EXPECT_EQ(end_of(wanted), state::there);
    ASSERT_EQ(wanted->bytes().size(), block_bytes);
    EXPECT_EQ(std::memcmp(wanted->bytes().data(), bytes.data() + 3 * block_bytes, block_bytes), 0);
    const std::uint64_t file_reads = reader->counters().file_reads;
    reader.reset();  // after its puts
    EXPECT_EQ(file_reads, 4u) << "each block once";
    EXPECT_EQ(store.gets[key(3)], 1);
    EXPECT_EQ(store.objects.size(), 4u);
    EXPECT_TRUE(store.objects.contains(key(3)));
}

// What is brought ahead, and no reader asks for, is not read from the file. Asked for later, it is
// asked of the store anew: another node may have put it.
TEST_F(block_readers, a_block_that_is_brought_ahead_alone_is_not_read_from_the_file) {
    start();
    bring_third_ahead();
    release();
    reader.reset();
    EXPECT_EQ(store.objects.size(), 3u);
    EXPECT_FALSE(store.objects.contains(key(3)));
    start();
    EXPECT_EQ(end_of(fetch(3)), state::there);
    reader.reset();
    EXPECT_EQ(store.gets[key(3)], 2);
    EXPECT_EQ(store.objects.size(), 4u);
}

// A reader that asks for it again waits for the same answer, however many blocks came since.
TEST_F(block_readers, a_block_under_way_is_kept_and_others_leave_for_it) {
    most_blocks = 1;
    start();
    {
        const std::lock_guard lock(store.mutex);
        store.held = key(5);
        store.is_held = true;
    }
    const auto held = fetch(5);
    for (const std::uint64_t number : {0, 2, 0}) EXPECT_EQ(end_of(fetch(number)), state::there);
    EXPECT_EQ(fetch(5), held);
    release();
    EXPECT_EQ(end_of(held), state::there);
    reader.reset();
    EXPECT_EQ(store.gets[key(5)], 1);
    EXPECT_EQ(store.gets[key(0)], 2) << "it had left";
}

// Its bytes are those of the version in which the reader opened the file.
TEST_F(block_readers, a_block_that_is_kept_is_given_only_while_the_file_is_as_it_was) {
    constexpr std::uint64_t looks_again_ns = 100'000'000;
    start();
    ASSERT_EQ(end_of(fetch(0)), state::there);
    write_file(folder / "data", pattern(43, blocks * block_bytes));
    const std::uint64_t changed = detail::host_now_ns();
    while (detail::host_now_ns() < changed + 2 * looks_again_ns) std::this_thread::yield();
    EXPECT_EQ(end_of(fetch(0)), state::failed);
}

// A store that stops: no more asks than it takes to know, each with the set time, and after a pause
// a single one.
TEST_F(block_readers, a_store_that_fails_still_is_asked_once_after_each_pause) {
    pause_ns = 20'000'000;
    start();
    let_fail(true);
    for (const std::uint64_t number : {5, 3, 1}) {
        EXPECT_EQ(reader->counters().pauses, 0u);
        EXPECT_EQ(end_of(fetch(number)), state::failed);
    }
    for (std::uint64_t pauses = 1; pauses < 5; ++pauses) {
        while (reader->counters().errors < pauses + 2) std::this_thread::yield();
        EXPECT_EQ(reader->counters().pauses, pauses);
        while (reader->is_paused()) std::this_thread::yield();
        EXPECT_EQ(end_of(fetch(5)), state::failed);
    }
    reader.reset();
    EXPECT_EQ(store.waits, std::vector<std::uint64_t>(7, wait_ns));
}

// Once it works again it may fail as often as before.
TEST_F(block_readers, a_store_that_works_again_is_believed_again) {
    pause_ns = 1;
    start();
    const auto fail = [this](std::uint64_t number) {
        let_fail(true);
        EXPECT_EQ(end_of(fetch(number)), state::failed);
        let_fail(false);
    };
    for (const std::uint64_t number : {5, 3, 1}) fail(number);
    EXPECT_EQ(reader->counters().pauses, 1u);
    EXPECT_EQ(end_of(fetch(5)), state::there);
    while (reader->counters().puts == 0) std::this_thread::yield();
    for (const std::uint64_t number : {3, 1}) fail(number);
    EXPECT_EQ(reader->counters().pauses, 1u);
    fail(3);
    EXPECT_EQ(reader->counters().pauses, 2u);
}

// The close of a file on FUSE waits for its server.
TEST_F(block_readers, a_worker_that_closes_a_file_holds_up_no_reader_of_others) {
    write_file(folder / "other", bytes);
    let_files_settle();
    start();
    {
        const std::lock_guard lock(store.mutex);
        store.held = key(0);
        store.is_held = true;
    }
    const auto first = fetch(0);
    {
        std::unique_lock lock(store.mutex);
        store.changed.wait(lock, [this] { return store.waiting == 1; });
    }
    open("other");  // so the worker has the last share of the file before
    std::atomic<bool> closes{false}, others_fetched{false}, waited_in_vain{false};
    env.before_close = [&] {
        closes = true;
        waited_in_vain = !soon([&] { return others_fetched.load(); });
    };
    release();
    EXPECT_TRUE(soon([&] { return closes.load(); }));
    EXPECT_NE(fetch(1), nullptr);
    others_fetched = true;
    reader.reset();
    EXPECT_FALSE(waited_in_vain);
}

// As many as the queue of a thread that reads with pread has room for, and more.
TEST_F(block_readers, reads_that_wait_for_blocks_keep_no_other_request_waiting) {
    write_file(folder / "other", pattern(43, 100));
    constexpr std::uint64_t readers = 80;
    store.held = key(0);
    store.is_held = true;
    options o = small_options(folder, 1);
    o.cache_bytes = 2 * readers * page;
    o.io = io_method::pread;
    o.service_threads = o.most_service_threads = 1;
    o.request_wait_ms = 600000;
    o.block_store_local = true;
    host::runtime_hooks hooks;
    hooks.env = &env;
    hooks.make_store = [this] { return std::make_unique<counted_store>(store); };
    hooks.set_blocks = [](host::block_settings& s) { s.wait_ns = 600'000'000'000; };
    const auto rt = make_runtime(o, hooks);
    const int fd = rt->open("data");
    std::vector<std::thread> reading;
    std::atomic<std::uint64_t> right{0};
    for (std::uint64_t i = 0; i < readers; ++i)
        reading.emplace_back([&, i] {
            std::uint8_t byte = 0;
            const std::uint64_t at = i * page + 3;
            read(lane{}, rt->ref(), fd, &byte, 1, static_cast<std::int64_t>(at));
            right += byte == bytes[at] ? 1 : 0;
        });
    const auto posted = [&] { return atomic_load<order::relaxed>(rt->ref().view.rings[0].tail); };
    EXPECT_TRUE(soon([&] { return posted() > readers; }));
    std::atomic<int> other{0};
    std::thread opener([&] { other = penstock::open(lane{}, rt->ref(), "other"); });
    EXPECT_TRUE(soon([&] { return other != 0; })) << "it waits for the store";
    EXPECT_EQ(right, 0u);
    release();
    opener.join();
    for (std::thread& each : reading) each.join();
    EXPECT_GE(other, 0);
    EXPECT_EQ(right, readers);
}

}  // namespace penstock::test
