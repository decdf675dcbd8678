// Blocks between nodes: what a runtime reads through a store is what the file has, whatever the
// agent does; each test of a lie has a canary without sums, which sees the lie.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fault/faulty_environment.hpp"
#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "store/agent_store.hpp"
#include "store/warm.hpp"
#include "unit/support.hpp"
#include "unit/test_agent.hpp"

namespace penstock::test {

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

std::string hex(const host::block_key& key) {
    std::string out;
    for (const std::uint8_t byte : key) {
        out += "0123456789abcdef"[byte >> 4];
        out += "0123456789abcdef"[byte & 15];
    }
    return out;
}

constexpr std::uint64_t block = host::block_bytes, size = 2 * block + 5000, blocks = 3;

// Files as a network file system has them, if told so.
class far_environment : public fault::faulty_environment {
public:
    // For how long all files have rested.
    void say_rested(host::file_times times, std::int64_t rested_ns) {
        times_ = times;
        rested_ns_ = rested_ns;
    }
    int facts(int handle, host::file_facts& out) override {
        const int code = faulty_environment::facts(handle, out);
        out.times = times_;
        out.rested_ns = rested_ns_;
        if (times_ != host::file_times::local) out.writing = host::writers::unknown;
        return code;
    }

private:
    host::file_times times_ = host::file_times::local;
    std::int64_t rested_ns_ = 0;
};

// A runtime of its own as a node has it: nothing of its files is in the memory of its operating
// system.
struct node {
    far_environment env;
    options o;
    std::vector<std::string> lines;
    std::mutex lines_mutex;
    bool checks_sums = true;
    std::uint64_t pause_ns = 600'000'000'000;
    std::unique_ptr<runtime> rt;

    node(const temporary_folder& folder, const std::string& socket) {
        env.say_cached(0);
        o = small_options(folder, 1);
        o.block_store = socket;
        o.block_store_local = true;
        o.block_store_wait_ms = 60000;  // an answer that comes late on a busy machine is no failure
        o.log = [this](const std::string& line) {
            const std::lock_guard lock(lines_mutex);
            lines.push_back(line);
        };
    }
    void start() {
        host::runtime_hooks hooks;
        hooks.env = &env;
        hooks.set_blocks = [this](host::block_settings& s) {
            s.checks_sums = checks_sums;
            s.pause_ns = pause_ns;
            s.absent_ns = 600'000'000'000;  // however long a test takes
        };
        rt = make_runtime(o, hooks);
    }
    std::size_t lines_with(const std::string& text) {
        const std::lock_guard lock(lines_mutex);
        return static_cast<std::size_t>(std::count_if(
            lines.begin(), lines.end(),
            [&](const std::string& line) { return line.find(text) != std::string::npos; }));
    }
};

class block_store : public testing::Test {
protected:
    block_store() : bytes(pattern(35, size)), agent(folder / "agent") {
        write_file(folder / "data", bytes);
        let_files_settle();
    }
    std::unique_ptr<node> make_node() const {
        auto made = std::make_unique<node>(folder, folder / "agent");
        return made;
    }
    // Bytes [offset, offset + count) as the runtime reads them, by pages.
    std::vector<std::uint8_t> read(runtime& rt, std::uint64_t offset = 0,
                                   std::uint64_t count = size) const {
        std::vector<std::uint8_t> got(count);
        const int fd = rt.open("data");
        EXPECT_GE(fd, 0);
        for (std::uint64_t at = 0; at < count; at += page)
            EXPECT_GE(rt.read(fd, got.data() + at, std::min(page, count - at),
                              static_cast<std::int64_t>(offset + at)),
                      0);
        EXPECT_EQ(rt.close(fd), 0);
        return got;
    }
    // A node that reads all of the file, and ends: until then a put may be under way, since readers
    // have a block before it is put. What the node counted before it ended.
    statistics read_and_end(node& with) const {
        EXPECT_EQ(read(*with.rt), bytes);
        const statistics counted = with.rt->stats();
        with.rt.reset();
        return counted;
    }
    // A node that reads all of the file and puts it.
    void fill_store(host::file_times times = host::file_times::local) {
        const auto first = make_node();
        first->env.say_rested(times, host::server_grain_ns);
        first->start();
        read_and_end(*first);
        ASSERT_EQ(agent.objects(), blocks);
    }

    const temporary_folder folder;
    const std::vector<std::uint8_t> bytes;
    test_agent agent;
};

}  // namespace

TEST(block_names, hashes_are_those_of_their_standards) {
    EXPECT_EQ(hex(host::sha256(bytes_of(""))),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hex(host::sha256(bytes_of("abc"))),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(
        hex(host::sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(host::xxh64(bytes_of("")), 0xEF46DB3751D8E999u);
    EXPECT_EQ(host::xxh64(bytes_of("a")), 0xD24EC4F1A98C6E5Bu);
    EXPECT_EQ(host::xxh64(bytes_of("abc")), 0x44BC2CF5AD770999u);
    EXPECT_EQ(host::xxh64(bytes_of("Nobody inspects the spammish repetition")),
              0xFBCEA83C8A378BF1u);
}

TEST(block_names, every_part_of_a_version_makes_another_key) {
    const host::block_file file{"space", "/data", "nfs a:/x", 10000000, 5, 6, 7};
    const host::block_key key = host::key_of(file, 1);
    EXPECT_EQ(host::key_of(file, 1), key);
    EXPECT_NE(host::key_of(file, 2), key);
    auto other = file;
    other.space = "spac";
    other.path = "e/data";
    EXPECT_NE(host::key_of(other, 1), key);
    for (const int part : {0, 1, 2, 3, 4, 5, 6}) {
        other = file;
        if (part == 0) other.space = "x";
        if (part == 1) other.path = "/datb";
        if (part == 2) ++other.size_bytes;
        if (part == 3) ++other.modified_ns;
        if (part == 4) ++other.changed_ns;
        if (part == 5) ++other.number;
        if (part == 6) other.file_system = "nfs b:/x";
        EXPECT_NE(host::key_of(other, 1), key) << part;
    }
}

TEST(block_names, a_path_begins_at_the_root_of_its_file_system) {
    const std::string mounts =
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:40 / /srv/a\\040b rw - fuse mfs rw\n"
        "3 1 0:41 /sub /data rw shared:1 - nfs srv:/x rw\n"
        "4 3 0:42 / /data/in rw - nfs srv:/y rw\n"
        "5 1 0:43 /later /data rw - nfs srv:/z rw\n";
    const auto place = [&](const std::string& path) {
        const host::mounted_place found = host::place_in_file_system(path, mounts);
        return found.file_system + " " + found.path;
    };
    EXPECT_EQ(place("/top/x"), "ext4 /dev/a /top/x");
    EXPECT_EQ(place("/srv/a b/c/d"), "fuse mfs /c/d");
    EXPECT_EQ(place("/data/f"), "nfs srv:/z /later/f");
    EXPECT_EQ(place("/data/in/f"), "nfs srv:/y /f");
    EXPECT_EQ(place("/database/f"), "ext4 /dev/a /database/f");
    EXPECT_EQ(host::place_in_file_system("/x", "").path, "");
    EXPECT_FALSE(host::place_in_file_system("/proc/self").path.empty());
}

TEST_F(block_store, what_one_node_read_another_does_not_read_from_the_file) {
    fill_store();
    EXPECT_EQ(agent.objects(), blocks);
    const auto second = make_node();
    second->start();
    EXPECT_EQ(read(*second->rt), bytes);
    const statistics s = second->rt->stats();
    EXPECT_EQ(s.store_hits, blocks);
    EXPECT_EQ(s.store_bytes, size);
    EXPECT_EQ(s.store_misses + s.store_errors + s.store_bad_blocks + s.store_puts, 0u);
    EXPECT_EQ(s.file_reads, 0u);
}

// A reader that goes through a file finds the next block there, if the store has it. It is not read
// from the file before it is asked for, and one that jumps pays for no other.
TEST_F(block_store, a_reader_that_goes_through_a_file_has_the_next_block_brought) {
    constexpr std::uint64_t many = 9;
    const std::vector<std::uint8_t> all = pattern(36, many * block);
    write_file(folder / "data", all);
    let_files_settle();
    const auto first = make_node();
    first->start();
    for (const std::uint64_t number : {2, 3, 4, 0, 8}) read(*first->rt, number * block, page);
    first->rt.reset();  // after its puts
    EXPECT_EQ(agent.objects(), 5u);
    const auto filling = make_node();
    filling->start();
    for (std::uint64_t number = many; number-- > 0;) read(*filling->rt, number * block, page);
    filling->rt.reset();
    EXPECT_EQ(agent.objects(), many);
    const auto second = make_node();
    second->start();
    for (const std::uint64_t number : {2, 3, 4}) read(*second->rt, number * block, page);
    while (second->rt->stats().store_hits < 4) std::this_thread::yield();
    const std::vector<std::uint8_t> got = read(*second->rt, 5 * block, page);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + 5 * block));
    while (second->rt->stats().store_hits < 5) std::this_thread::yield();
    second->rt.reset();
    const auto jumping = make_node();
    jumping->start();
    for (const std::uint64_t number : {8, 0, 3, 5}) read(*jumping->rt, number * block, page);
    const std::uint64_t hits = jumping->rt->stats().store_hits;
    EXPECT_EQ(hits, 4u);
}

TEST_F(block_store, without_a_store_nothing_is_asked) {
    const auto other = make_node();
    other->o.block_store.clear();
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_EQ(agent.gets(), 0u);
    EXPECT_EQ(other->rt->stats().store_misses, 0u);
}

TEST_F(block_store, files_of_this_machine_alone_are_not_in_it_unless_told) {
    const auto other = make_node();
    other->o.block_store_local = false;
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_EQ(agent.gets(), 0u);
}

TEST_F(block_store, what_the_operating_system_has_comes_from_there) {
    const auto other = make_node();
    other->env.say_cached(1);
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_EQ(agent.gets(), 0u);
}

TEST_F(block_store, a_lie_is_found_and_a_canary_without_sums_believes_it) {
    fill_store();
    for (const manner lie : {manner::flips, manner::tears, manner::other_block}) {
        SCOPED_TRACE(static_cast<int>(lie));
        agent.behave(lie);
        const auto canary = make_node();
        canary->checks_sums = false;
        canary->start();
        EXPECT_NE(read(*canary->rt), bytes) << "the agent did not lie";
        const auto careful = make_node();
        careful->start();
        EXPECT_EQ(read(*careful->rt), bytes);
        const statistics s = careful->rt->stats();
        EXPECT_GT(s.store_bad_blocks, 0u);
        EXPECT_GT(s.file_reads, 0u);
        agent.behave(manner::honest);
    }
}

TEST_F(block_store, a_bad_block_is_replaced) {
    fill_store();
    agent.behave(manner::flips);
    const auto careful = make_node();
    careful->start();
    EXPECT_EQ(read(*careful->rt, 0, page).size(), page);
    careful->rt.reset();  // after its puts
    EXPECT_EQ(agent.replaced(), 1u);
    agent.behave(manner::honest);
    const auto next = make_node();
    next->start();
    EXPECT_EQ(read(*next->rt), bytes);
    EXPECT_EQ(next->rt->stats().store_hits, blocks);
}

TEST_F(block_store, a_silent_agent_is_left_alone_and_that_is_said_once) {
    fill_store();
    agent.behave(manner::silent);
    const auto other = make_node();
    other->o.block_store_wait_ms = 1;
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    // Each block is asked for in vain, and that is enough for a pause. Readers of the file do not
    // wait for a worker that comes to it late; what it says is the last that it does.
    while (other->lines_with("block_store: the store failed") == 0) std::this_thread::yield();
    const statistics s = other->rt->stats();
    EXPECT_EQ(s.store_hits, 0u);
    EXPECT_GE(s.store_errors, 3u);
    EXPECT_GE(s.store_pauses, 1u);
    EXPECT_EQ(s.store_is_paused, 1u);
    EXPECT_EQ(other->lines_with("block_store: the store failed"), 1u);
    const std::uint64_t errors = s.store_errors;
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_LE(other->rt->stats().store_errors, errors + 8) << "more than was under way";
}

// The late answer and its bytes go to a connection and to memory that are used no more.
TEST_F(block_store, a_late_answer_reaches_no_later_get) {
    constexpr std::uint64_t long_ns = 60'000'000'000;
    host::agent_store store(folder / "agent");
    const host::block_key late{1}, other{2};
    std::vector<std::byte> object(host::block_object_bytes, std::byte{1}), got(object.size());
    ASSERT_EQ(store.put(late, object, false, long_ns), 0);
    std::fill(object.begin(), object.end(), std::byte{2});
    ASSERT_EQ(store.put(other, object, false, long_ns), 0);
    agent.behave(manner::late);
    EXPECT_EQ(store.get(late, got, 20'000'000, false), -ETIMEDOUT);
    const auto get_other = [&] {
        std::fill(got.begin(), got.end(), std::byte{0});
        EXPECT_EQ(store.get(other, got, long_ns, false), static_cast<std::int64_t>(object.size()));
        EXPECT_EQ(got, object);
    };
    while (agent.waiting() == 0) std::this_thread::yield();
    get_other();
    agent.release();
    for (int i = 0; i < 20; ++i) get_other();
    EXPECT_EQ(store.get(late, got, long_ns, false), static_cast<std::int64_t>(object.size()));
    EXPECT_EQ(got.front(), std::byte{1});
}

TEST_F(block_store, without_an_agent_the_file_is_read) {
    agent.kill();
    const auto other = make_node();
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_EQ(other->rt->stats().store_is_paused, 1u);
    std::filesystem::remove(folder / "agent");  // no socket at all
    const auto another = make_node();
    another->start();
    EXPECT_EQ(read(*another->rt), bytes);
    EXPECT_EQ(another->rt->stats().store_misses, 0u);
}

TEST_F(block_store, an_agent_that_died_and_came_back_is_used_again) {
    fill_store();
    const auto other = make_node();
    other->pause_ns = 1;
    other->start();
    EXPECT_EQ(read(*other->rt, 0, block), pattern(35, block));
    EXPECT_EQ(other->rt->stats().store_hits, 1u);
    agent.kill();
    EXPECT_EQ(read(*other->rt, block, page),
              std::vector<std::uint8_t>(bytes.begin() + block, bytes.begin() + block + page));
    const std::uint64_t failed = other->rt->stats().store_errors;
    EXPECT_GE(failed, 1u);
    agent.start();
    EXPECT_EQ(read(*other->rt, 2 * block, 5000),
              std::vector<std::uint8_t>(bytes.begin() + 2 * block, bytes.end()));
    EXPECT_EQ(other->rt->stats().store_hits, 2u);
    EXPECT_EQ(other->rt->stats().store_errors, failed);
}

// The connections of its workers are of an agent that is no more; no failure comes of it.
TEST_F(block_store, an_agent_that_was_replaced_costs_no_failure) {
    fill_store();
    const auto other = make_node();
    other->start();
    EXPECT_EQ(read(*other->rt, 0, page).size(), page);
    agent.kill();
    agent.start();
    EXPECT_EQ(read(*other->rt), bytes);
    const statistics s = other->rt->stats();
    EXPECT_EQ(s.store_hits, blocks);
    EXPECT_EQ(s.store_errors, 0u);
}

TEST_F(block_store, an_agent_that_answers_with_errors_is_left_alone) {
    fill_store();
    agent.behave(manner::fails);
    const auto other = make_node();
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_EQ(other->rt->stats().store_is_paused, 1u);
}

TEST_F(block_store, a_file_that_changes_while_a_block_is_read_is_not_put) {
    const auto other = make_node();
    other->start();
    other->env.stall(fault::call_plain_read);
    std::vector<std::uint8_t> got(page);
    const int fd = other->rt->open("data");
    std::thread reader([&] { EXPECT_EQ(other->rt->read(fd, got.data(), page, 0), page); });
    while (other->env.stalled() == 0) std::this_thread::yield();
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder / "data").c_str(), nullptr, 0), 0);
    other->env.release();
    reader.join();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin()));
    other->rt.reset();
    EXPECT_EQ(agent.objects(), 0u);
}

TEST_F(block_store, a_new_version_has_blocks_of_its_own) {
    fill_store();
    const std::vector<std::uint8_t> newer = pattern(36, size);
    write_file(folder / "data", newer);
    let_files_settle();
    const auto other = make_node();
    other->start();
    EXPECT_EQ(read(*other->rt), newer);
    EXPECT_EQ(other->rt->stats().store_hits, 0u);
    other->rt.reset();
    EXPECT_EQ(agent.objects(), 2 * blocks);
}

// What is read of a file that has not rested may be of an earlier state under the same facts.
TEST_F(block_store, a_file_that_has_not_rested_is_taken_from_it_but_not_put) {
    const auto first = make_node();
    first->env.say_rested(host::file_times::server, 0);
    first->start();
    EXPECT_EQ(read_and_end(*first).store_misses, blocks);
    EXPECT_EQ(agent.objects(), 0u);
    fill_store(host::file_times::server);
    const auto second = make_node();
    second->env.say_rested(host::file_times::server, 0);
    second->start();
    EXPECT_EQ(read(*second->rt), bytes);
    EXPECT_EQ(second->rt->stats().store_hits, blocks);
    EXPECT_EQ(second->rt->stats().file_reads, 0u);
}

TEST_F(block_store, a_file_that_has_rested_is_put) {
    const auto first = make_node();
    first->env.say_rested(host::file_times::server, host::server_grain_ns);
    first->start();
    read_and_end(*first);
    EXPECT_EQ(agent.objects(), blocks);
}

TEST_F(block_store, a_file_whose_times_are_not_trusted_is_in_it_only_if_told) {
    for (const trust_mode trust : {trust_mode::automatic, trust_mode::off, trust_mode::on}) {
        const auto first = make_node();
        first->env.say_rested(host::file_times::unreliable, host::server_grain_ns);
        first->o.trust_times = trust;
        first->start();
        read_and_end(*first);
        EXPECT_EQ(agent.objects(), trust == trust_mode::on ? blocks : 0u);
        EXPECT_EQ(agent.gets(), trust == trust_mode::on ? blocks : 0u);
    }
}

TEST_F(block_store, a_warming_process_waits_until_a_file_has_rested) {
    far_environment env;
    env.say_rested(host::file_times::server, host::server_grain_ns - 1'000'000);
    const auto warm = [&](trust_mode trust) {
        host::agent_store store(folder / "agent");
        host::warm_counts counts;
        const status done = host::warm_blocks(env, folder / "data", {"", 60'000'000'000, trust},
                                              {0, 1, blocks}, store, counts);
        EXPECT_EQ(counts.put, done.ok() ? blocks : 0u) << done.message;
        return done;
    };
    // These files do not rest any longer for being waited for.
    EXPECT_EQ(warm(trust_mode::automatic).code, -EAGAIN);
    env.say_rested(host::file_times::unreliable, host::server_grain_ns);
    const status untold = warm(trust_mode::automatic);
    EXPECT_EQ(untold.code, -EOPNOTSUPP);
    EXPECT_NE(untold.message.find("PENSTOCK_TRUST_TIMES=on"), std::string::npos);
    EXPECT_TRUE(warm(trust_mode::on).ok());
    EXPECT_EQ(agent.objects(), blocks);
}

TEST_F(block_store, what_a_runtime_writes_is_not_asked_of_it) {
    fill_store();
    const auto other = make_node();
    other->o.writable = true;
    other->start();
    const std::uint64_t gets = agent.gets();
    const int fd = other->rt->open("data", penstock::open_read_write);
    ASSERT_GE(fd, 0);
    std::vector<std::uint8_t> mine(page, 7), got(page);
    ASSERT_EQ(other->rt->write(fd, mine.data(), page, 0), page);
    ASSERT_EQ(other->rt->read(fd, got.data(), page, 4 * page), page);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin() + 4 * page));
    EXPECT_EQ(other->rt->close(fd), 0);
    EXPECT_EQ(agent.gets(), gets);
}

TEST_F(block_store, the_host_tier_is_filled_from_it) {
    fill_store();
    const auto other = make_node();
    other->o.tier_bytes = 512 * page;
    other->o.window_bytes = 4u << 20;
    other->start();
    EXPECT_EQ(read(*other->rt), bytes);
    const statistics s = other->rt->stats();
    EXPECT_GT(s.read_ahead_pages, 0u);
    EXPECT_GT(s.tier_loads, 0u);
    EXPECT_EQ(s.read_ahead_failures, 0u);
    EXPECT_EQ(s.file_reads, 0u);
}

TEST_F(block_store, many_threads_read_right_bytes_while_the_agent_comes_and_goes) {
    const auto other = make_node();
    other->pause_ns = 1;
    other->o.block_store_wait_ms = 20;
    other->start();
    std::atomic<bool> done{false};
    std::vector<std::thread> readers;
    for (int r = 0; r < 3; ++r)
        readers.emplace_back([&] {
            do EXPECT_EQ(read(*other->rt), bytes);
            while (!done);
        });
    for (int i = 0; i < 5; ++i) {
        agent.kill();
        agent.start();
        agent.behave(static_cast<manner>(i));
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    agent.behave(manner::honest);
    done = true;
    for (std::thread& reader : readers) reader.join();
}

TEST_F(block_store, a_child_of_fork_leaves_the_parents_connections_alone) {
    fill_store();
    const auto other = make_node();
    other->start();
    EXPECT_EQ(read(*other->rt, 0, page).size(), page);
    host::agent_store parents(folder / "agent");
    std::vector<std::byte> object(host::block_object_bytes);
    EXPECT_EQ(parents.get({}, object, 60'000'000'000, false), -ENOENT);
    const auto sockets = [] {
        int count = 0;
        struct stat facts {};
        for (int fd = 0; fd < 1024; ++fd) count += !::fstat(fd, &facts) && S_ISSOCK(facts.st_mode);
        return count;
    };
    const int parents_sockets = sockets();
    const pid_t child = ::fork();
    if (child == 0) {
        std::vector<std::uint8_t> got(page);
        const bool is_right = sockets() < parents_sockets && other->rt->open("data") == -ECHILD &&
                              parents.get({}, object, 60'000'000'000, false) == -ECHILD;
        ::_exit(is_right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(parents.get({}, object, 60'000'000'000, false), -ENOENT);
    EXPECT_EQ(read(*other->rt), bytes);
    EXPECT_EQ(other->rt->stats().store_hits, blocks);
}

TEST_F(block_store, rows_of_tables_come_from_it) {
    fill_store();
    const auto other = make_node();
    other->o.window_bytes = 0;
    other->start();
    constexpr std::uint64_t row_bytes = 1000;
    table_layout layout{.row_bytes = row_bytes};
    layout.pieces.push_back({folder / "data", 0, size / row_bytes});
    std::unique_ptr<table> rows;
    const status made = table::make(*other->rt, layout, {}, rows);
    ASSERT_TRUE(made.ok()) << made.message;
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < 3000; ++i) numbers.push_back(mix64(i) % rows->size());
    std::vector<std::uint8_t> got(numbers.size() * row_bytes);
    ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data(), {}), 0);
    for (std::size_t i = 0; i < numbers.size(); ++i)
        ASSERT_EQ(std::memcmp(&got[i * row_bytes], &bytes[numbers[i] * row_bytes], row_bytes), 0);
    const statistics s = other->rt->stats();
    EXPECT_GE(s.store_hits, blocks);
    EXPECT_EQ(s.store_misses, 0u);
    EXPECT_EQ(s.file_reads, 0u);
    EXPECT_EQ(s.through_reads, 0u);
}

}  // namespace penstock::test
