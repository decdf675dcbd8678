// What workers of blocks ask a store, counted: a store of the test's own, which holds an answer
// back, or fails, when it is told to.
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>

#include "fault/faulty_environment.hpp"
#include "os/mount_path.hpp"
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
        const int found = env.find(-1, folder / "data"), fd = env.open_found(found);
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
        reader = std::make_unique<host::block_reader>(
            env, settings, [this] { return std::make_unique<counted_store>(store); });
    }
    std::shared_ptr<block_fetch> fetch(std::uint64_t number) {
        return reader->fetch(file, version, true, number);
    }
    state end_of(const std::shared_ptr<block_fetch>& fetched) {
        while (fetched->look() == state::under_way) std::this_thread::yield();
        return fetched->look();
    }
    host::block_key key(std::uint64_t number) const {
        return host::key_of({"", host::path_in_file_system(folder / "data"), version.size_bytes,
                             version.modified_ns, version.changed_ns},
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

    const temporary_folder folder;
    const std::vector<std::uint8_t> bytes;
    fault::faulty_environment env;
    std::shared_ptr<host::shared_handle> file;
    host::file_identity version;
    std::uint64_t pause_ns = 600'000'000'000;
    common_store store;
    std::unique_ptr<host::block_reader> reader;
};

}  // namespace

// The reader asks for the block while the store has not answered the look ahead: it is read from
// the file once, by a worker, and put, so that the next node finds it.
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

}  // namespace penstock::test
