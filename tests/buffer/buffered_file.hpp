// What the tests of the buffer manager share: a file with a buffer over it, on a disk that may
// fail.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "buffer/pool/manager.hpp"
#include "fault/faulty_environment.hpp"
#include "region/support.hpp"
#include "rounds.hpp"

namespace penstock::test {

using bytes = std::vector<std::uint8_t>;

inline std::byte* begin_of(bytes& some) { return reinterpret_cast<std::byte*>(some.data()); }

// A device moves all of a batch at once, so two moves of one frame have no order.
inline void expect_each_frame_once(const std::vector<buffer::frame_move>& batch) {
    std::set<std::uint32_t> host, device;
    for (const buffer::frame_move& moved : batch) {
        EXPECT_TRUE(host.insert(moved.host).second) << "host frame " << moved.host;
        EXPECT_TRUE(device.insert(moved.device).second) << "device frame " << moved.device;
    }
}

// Frames that move as late as they may: what was begun is done when it must have ended, or when
// something else is asked of its queue. With `forgetful`, nothing is moved once in a while: the
// canary.
class late_frames final : public buffer::device_frames {
public:
    late_frames(std::unique_ptr<device_frames> real, unsigned queues, bool forgetful = false)
        : real_(std::move(real)), begun_(queues), forgetful_(forgetful) {}
    [[nodiscard]] std::byte* host_frames() const override { return real_->host_frames(); }
    int begin(unsigned queue, const std::vector<buffer::frame_move>& batch) override {
        expect_each_frame_once(batch);
        if (queue >= begun_.size()) return real_->begin(queue, batch);
        if (const int code = end(queue); code != 0) return code;
        if (forgetful_ && ++calls_ % 100 == 0) return 0;
        begun_[queue] = batch;
        return 0;
    }
    int end(unsigned queue) override {
        if (queue >= begun_.size()) return real_->end(queue);
        return real_->move(queue, std::exchange(begun_[queue], {}));
    }
    int compare(unsigned queue, const std::vector<buffer::frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        const int code = end(queue);
        return code != 0 ? code : real_->compare(queue, pairs, equal);
    }
    int hash(unsigned queue, buffer::signature_kind kind, const std::vector<std::uint32_t>& host,
             std::vector<buffer::content_hash>& out) override {
        const int code = end(queue);
        return code != 0 ? code : real_->hash(queue, kind, host, out);
    }

private:
    std::unique_ptr<device_frames> real_;
    std::vector<std::vector<buffer::frame_move>> begun_;  // by queue, each of one thread
    const bool forgetful_;
    std::uint64_t calls_ = 0;
};

// What kind of buffer, and where its device's part lies.
struct buffer_kind {
    buffer_kind(backend on, buffer::policy_kind policy = buffer::policy_kind::gram)
        : where(on), policy(policy) {}  // a backend alone will do
    friend void PrintTo(const buffer_kind& kind, std::ostream* out) {
        *out << (kind.where == backend::gpu ? "gpu" : "cpu")
             << (kind.policy == buffer::policy_kind::dedu ? "_dedu" : "");
    }

    backend where;
    buffer::policy_kind policy;
};

using frames_owner = std::unique_ptr<buffer::device_frames>;

// A file, and a buffer over it, whose frames a test may put others around. Those of CPU threads are
// late.
struct buffered_file {
    buffered_file(buffer::manager_settings settings, const bytes& content, backend where,
                  const std::function<frames_owner(frames_owner)>& around, bool forgetful = false) {
        if (settings.begins == buffer::begun_reads::past_the_page_cache)
            settings.begins = buffer::begun_reads::all;  // also of files that the page cache has
        write_file(folder / "f", content);
        fd = ::open((folder / "f").c_str(), O_RDWR | O_CLOEXEC);
        EXPECT_GE(fd, 0);
        std::string why;
        const buffer::frames_shape shape = buffer::frames_for(settings);
        frames = where == backend::gpu ? buffer::make_gpu_frames(0, shape, why)
                                       : buffer::make_cpu_frames(shape, why);
        EXPECT_NE(frames, nullptr) << why;
        if (where == backend::cpu || forgetful)
            frames = std::make_unique<late_frames>(std::move(frames), shape.queues, forgetful);
        if (around) frames = around(std::move(frames));
        const status made = buffer::manager::make(settings, *frames, env, all);
        EXPECT_TRUE(made.ok()) << made.message;
        EXPECT_EQ(all->add_file(fd, content.size()), 0);
    }
    buffered_file(const buffer::manager_settings& settings, const bytes& content,
                  buffer_kind kind = backend::cpu, bool forgetful = false)
        : buffered_file(with_policy(settings, kind.policy), content, kind.where, {}, forgetful) {}
    ~buffered_file() {
        all.reset();
        ::close(fd);
    }
    void expect_right() const {
        const char* const wrong = all->check();
        EXPECT_EQ(wrong, nullptr) << (wrong == nullptr ? "" : wrong);
    }
    [[nodiscard]] bytes on_disk() const { return read_file(folder / "f"); }
    static buffer::manager_settings with_policy(buffer::manager_settings settings,
                                                buffer::policy_kind policy) {
        settings.policy = policy;
        return settings;
    }

    const temporary_folder folder;
    fault::faulty_environment env;
    int fd = -1;
    frames_owner frames;
    std::unique_ptr<buffer::manager> all;
};

// Some reads or writes fail from now on, once or for ever.
inline void fail_somehow(fault::faulty_environment& env, std::mt19937_64& random) {
    fault::fault_plan plan;
    plan.calls = random() % 2 == 0 ? fault::call_write : fault::call_read;
    plan.nth = random() % 16 + 1;
    plan.for_ever = random() % 4 == 0;
    plan.error = random() % 2 == 0 ? -EIO : -ENOSPC;
    plan.longest_write = random() % 3 == 0 ? 100 : 0;
    env.set(plan);
}

// The device's part is always used, so that counts are exact.
inline buffer::manager_settings small(std::uint32_t host_pages, std::uint32_t device_pages,
                                      buffer::order_kind order, std::uint64_t page_bytes = 512) {
    return {.page_bytes = page_bytes,
            .host_pages = host_pages,
            .device_pages = device_pages,
            .sessions = 2,
            .fixed_pages = 1,
            .order = order,
            .stands_back = false};
}

class on_backends : public testing::TestWithParam<buffer_kind> {
protected:
    void SetUp() override {
        if (GetParam().where == backend::gpu && !gpu_is_there())
            GTEST_SKIP() << "no GPU in this machine";
    }
};

inline std::string name_of(const testing::TestParamInfo<buffer_kind>& info) {
    return testing::PrintToString(info.param);
}

inline std::uint64_t word_of(const bytes& some, std::uint64_t number) {
    std::uint64_t out = 0;
    std::memcpy(&out, some.data() + 8 * number, 8);
    return out;
}

// Eight threads; each adds to numbers of its own in pages that all share, reads them back, and
// flushes now and then. `failing`: the disk fails at times, and a thread that gets an error goes on
// with something else.
template <typename File>
struct adding_to {
    static constexpr std::uint64_t threads = 8, pages = 60, page_words = 64;

    template <typename... Of>
    adding_to(bool failing, unsigned writes_of_three, Of&&... of_file)
        : f(std::forward<Of>(of_file)...),
          added(threads, std::vector<std::uint64_t>(pages * page_words, 0)),
          failing(failing),
          writes_of_three(writes_of_three) {}

    void step(buffer::session& session, std::uint64_t t, std::mt19937_64& random) {
        const std::uint64_t page = random() % 3 == 0 ? random() % pages : random() % 10,
                            word = random() % (page_words / threads) * threads + t;
        const bool writes = random() % 3 < writes_of_three;
        buffer::fixed_page fixed;
        const int code = session.fix(
            {page, 0}, writes ? buffer::use_kind::write : buffer::use_kind::read, fixed);
        if (code != 0 && failing) return;
        ASSERT_EQ(code, 0);
        auto* const number = reinterpret_cast<std::uint64_t*>(fixed.data) + word;
        ASSERT_EQ(*number, added[t][page * page_words + word])
            << "page " << page << ", thread " << t;
        if (writes) ++*number, ++added[t][page * page_words + word];
        session.unfix(fixed, writes);
    }
    // After a flush the file has the thread's additions, whichever thread wrote them.
    void flush(buffer::session& session, std::uint64_t t) {
        const int code = session.flush(0);
        if (code != 0 && failing) return;
        ASSERT_EQ(code, 0);
        bytes now(pages * 512);
        ASSERT_EQ(::pread(f.fd, now.data(), now.size(), 0), static_cast<ssize_t>(now.size()));
        for (std::uint64_t own = t; own < pages * page_words; own += threads)
            ASSERT_EQ(word_of(now, own), added[t][own]) << own;
    }
    void run(std::uint64_t steps) {
        std::vector<std::jthread> running;
        for (std::uint64_t t = 0; t < threads; ++t)
            running.emplace_back([&, t] {
                auto session = f.all->open_session();
                ASSERT_NE(session, nullptr);
                std::mt19937_64 random(t);
                for (std::uint64_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
                    step(*session, t, random);
                    if (random() % 300 == 0) flush(*session, t);
                    if (failing && t == 0 && i % 200 == 0) fail_somehow(f.env, random);
                }
            });
        running.clear();
        f.env.clear();
        f.expect_right();
        EXPECT_EQ(f.all->open_session()->flush(0), 0);
        const bytes now = f.on_disk();
        for (std::uint64_t word = 0; word < pages * page_words; ++word)
            ASSERT_EQ(word_of(now, word), added[word % threads][word]) << word;
    }

    File f;
    std::vector<std::vector<std::uint64_t>> added;
    const bool failing;
    const unsigned writes_of_three;
};

// What a core alone counts for the same accesses.
inline void expect_as(const buffer::manager_counts& seen, const buffer::manager_counts& expected) {
    EXPECT_EQ(seen.host_hits, expected.host_hits);
    EXPECT_EQ(seen.device_hits, expected.device_hits);
    EXPECT_EQ(seen.misses, expected.misses);
    EXPECT_EQ(seen.write_backs, expected.write_backs);
    EXPECT_EQ(seen.demotions, expected.demotions);
    EXPECT_EQ(seen.promotions, expected.promotions);
}

}  // namespace penstock::test
