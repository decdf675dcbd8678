// Close-to-open on a network file system, whatever the clocks of server and reader say: a reader
// that opens a file after another machine closed it reads what that machine wrote. And what stays
// unchanged is kept. Each canary breaks one half of the rule and has to read an old byte.
#include <atomic>
#include <random>

#include "fault/network_files.hpp"
#include "fault/scenario.hpp"
#include "os/file_kind.hpp"

namespace penstock::fault {

namespace {

constexpr std::int64_t second = 1'000'000'000;

class network {
public:
    explicit network(const network_shape& shape, trust_mode trust = trust_mode::automatic)
        : files_(shape) {
        host::runtime_hooks hooks;
        hooks.env = &files_;
        test::write_file(path(), test::pattern(0, page));
        files_.changed_elsewhere(path());
        options o = test::small_options(folder_);
        o.trust_times = trust;
        o.writable = true;
        o.log = [this](const std::string& line) {
            if (line.find("other machines may change") != std::string::npos) said_.push_back(line);
        };
        rt_ = test::make_runtime(o, hooks);
    }

    void write() {
        test::write_file(path(), test::pattern(++version_, page));
        files_.changed_elsewhere(path());
    }
    // False: old bytes.
    bool read() {
        const int fd = open(lane{}, rt_->ref(), name_.c_str());
        std::vector<std::uint8_t> got(page);
        EXPECT_EQ(penstock::read(lane{}, rt_->ref(), fd, got.data(), page, 0),
                  static_cast<std::int64_t>(page));
        EXPECT_EQ(close(lane{}, rt_->ref(), fd), 0);
        ++opens_;
        const bool fresh = got == test::pattern(version_, page);
        if (!fresh) ++stale_;
        return fresh;
    }
    void wait(std::int64_t ns) { files_.wait(ns); }
    void rename(const std::string& to) {
        const std::string from = path();
        name_ = to;
        EXPECT_EQ(rt_->rename(from, path()), 0);
    }

    // Lines of the log about the file system.
    [[nodiscard]] const std::vector<std::string>& said() const { return said_; }
    [[nodiscard]] std::uint64_t stale() const { return stale_; }
    [[nodiscard]] std::uint64_t reused() const { return opens_ - rt_->stats().misses; }

private:
    [[nodiscard]] std::string path() const { return folder_ / name_; }

    const temporary_folder folder_;
    std::string name_ = "data";
    network_files files_;
    std::vector<std::string> said_;
    std::unique_ptr<runtime> rt_;
    std::uint64_t version_ = 0, opens_ = 0, stale_ = 0;
};

// Every sequence of so many steps, one after the other, of four kinds.
void do_every_sequence(network& with, unsigned steps) {
    for (unsigned sequence = 0; sequence < 1u << (2 * steps); ++sequence) {
        for (unsigned step = 0; step < steps; ++step) {
            switch (sequence >> (2 * step) & 3) {
                case 0: with.write(); break;
                case 1: with.read(); break;
                case 2: with.wait(300'000'000); break;
                default: with.wait(host::server_grain_ns); break;
            }
        }
        with.read();
    }
}

void do_at_random(network& with, std::uint64_t seed, int steps) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < steps; ++i) {
        switch (random() % 8) {
            case 0: with.write(); break;
            case 1: with.wait(static_cast<std::int64_t>(random() % 3'000'000'000)); break;
            case 2: with.wait(host::server_grain_ns + 1); break;
            case 3: with.wait(static_cast<std::int64_t>(random() % 10'000'000)); break;
            default: with.read(); break;
        }
    }
}

}  // namespace

TEST(network_files, every_short_sequence_of_writes_reads_and_waits) {
    for (const std::int64_t grain : {second, 2 * second}) {
        network with({.grain_ns = grain, .server_ahead_ns = -2 * second});
        do_every_sequence(with, 5);
        EXPECT_EQ(with.stale(), 0u);
        EXPECT_GT(with.reused(), 0u);
    }
}

TEST(network_files, no_clock_and_no_kept_attribute_makes_a_read_old) {
    std::uint64_t seed = 1;
    for (const std::int64_t ahead :
         {-1'000'000 * second, -2 * second, std::int64_t{0}, 2 * second, 1'000'000 * second})
        for (const std::int64_t grain :
             {std::int64_t{1}, std::int64_t{10'000'000}, second, 2 * second})
            for (const std::int64_t kept : {std::int64_t{0}, second}) {
                network with({.grain_ns = grain,
                              .server_ahead_ns = ahead,
                              .attributes_ns = 60 * second,
                              .server_keeps_ns = kept});
                do_at_random(with, ++seed, 200);
                EXPECT_EQ(with.stale(), 0u)
                    << "server ahead " << ahead << ", grain " << grain << ", kept " << kept;
                EXPECT_GT(with.reused(), 0u);
            }
}

TEST(network_files, a_file_that_rests_is_read_twice_and_then_kept) {
    network with({.server_ahead_ns = 2 * second});
    with.read();
    with.read();
    EXPECT_EQ(with.reused(), 0u);  // it has not rested
    with.wait(host::server_grain_ns);
    with.read();
    EXPECT_EQ(with.reused(), 0u);  // what was read before that may be old
    for (int i = 0; i < 5; ++i) with.read();
    EXPECT_EQ(with.reused(), 5u);
    with.write();
    EXPECT_TRUE(with.read());
}

// The new name has a new time, and a write right after it may have the same.
TEST(network_files, a_file_that_got_another_name_rests_once_more) {
    network with({});
    with.read();
    with.wait(host::server_grain_ns);
    for (int i = 0; i < 3; ++i) with.read();
    EXPECT_EQ(with.reused(), 2u);
    with.rename("other");
    EXPECT_TRUE(with.read());
    with.write();
    EXPECT_TRUE(with.read());
}

TEST(network_files, times_are_trusted_as_told) {
    const struct {
        host::file_times times;
        trust_mode trust;
        bool is_reused;
        const char* said;
    } cases[] = {
        {host::file_times::server, trust_mode::automatic, true, "rested for 4 s"},
        {host::file_times::server, trust_mode::on, true, "rested for 4 s"},
        {host::file_times::server, trust_mode::off, false, "PENSTOCK_TRUST_TIMES=off says"},
        {host::file_times::unreliable, trust_mode::automatic, false, "set PENSTOCK_TRUST_TIMES=on"},
        {host::file_times::unreliable, trust_mode::on, true, "PENSTOCK_TRUST_TIMES=on says"},
        {host::file_times::unreliable, trust_mode::off, false, "PENSTOCK_TRUST_TIMES=off says"}};
    for (const auto& c : cases) {
        network with({.times = c.times}, c.trust);
        do_at_random(with, 7, 200);
        EXPECT_EQ(with.stale(), 0u);
        EXPECT_EQ(with.reused() != 0, c.is_reused) << c.said;
        ASSERT_EQ(with.said().size(), 1u) << c.said;  // once, whatever was opened
        EXPECT_NE(with.said()[0].find(c.said), std::string::npos) << with.said()[0];
        EXPECT_NE(with.said()[0].find("/data lies on "), std::string::npos) << with.said()[0];
    }
}

// The rule of 0.1.0, with a server whose clock is two seconds behind.
TEST(network_files, canary_the_local_clock_reads_old_bytes) {
    network with({.server_ahead_ns = -2 * second, .seems_local = true});
    do_at_random(with, 1, 400);
    EXPECT_GT(with.stale(), 0u);
}

TEST(network_files, canary_without_a_rest_old_bytes_are_read) {
    network with({.seems_rested = true});
    do_at_random(with, 1, 400);
    EXPECT_GT(with.stale(), 0u);
}

TEST(network_files, canary_attributes_that_are_believed_make_reads_old) {
    network with({.attributes_ns = second, .asks_server = false});
    do_at_random(with, 1, 400);
    EXPECT_GT(with.stale(), 0u);
}

}  // namespace penstock::fault
