// A process that can make no more threads: creation gives -EAGAIN and leaves nothing behind, and
// work that was to be shared is done by the threads that are there.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <stdexcept>

#include "fault/faulty_environment.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace {

std::atomic<int> threads_left{1 << 30};

}  // namespace

// In place of the system's: it refuses as the kernel does at RLIMIT_NPROC.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
    using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
    return threads_left.fetch_sub(1) <= 0 ? EAGAIN : real(thread, attributes, body, argument);
}

namespace penstock::test {

namespace {

struct count_groups {
    std::atomic<std::uint64_t>* sum;
    template <typename Group>
    void operator()(const Group&, const runtime_ref&, std::uint64_t index) const {
        *sum += index + 1;
    }
};

}  // namespace

TEST(thread_limit, creation_refuses_and_names_the_limit) {
    const temporary_folder folder;
    options o = small_options(folder);
    o.service_threads = 3;
    for (int allowed = 0; allowed < 4; ++allowed) {
        std::unique_ptr<runtime> rt;
        threads_left = allowed;
        const status s = runtime::make(o, rt);
        threads_left = 1 << 30;
        EXPECT_EQ(s.code, -EAGAIN) << allowed;
        EXPECT_NE(s.message.find("RLIMIT_NPROC"), std::string::npos) << s.message;
        EXPECT_EQ(rt, nullptr);
    }
    threads_left = 4;  // and one that beats
    std::unique_ptr<runtime> rt;
    EXPECT_TRUE(runtime::make(o, rt).ok());
    threads_left = 1 << 30;
}

TEST(thread_limit, work_goes_on_with_the_threads_there_are) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 4 << 20));
    options o = small_options(folder);
    o.worker_threads = 8;
    const auto rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    for (const int allowed : {0, 3}) {
        std::atomic<std::uint64_t> sum{0};
        threads_left = allowed;
        EXPECT_EQ(launch<width::lane>(*rt, 1000, count_groups{&sum}), 0);
        EXPECT_EQ(sum, 1000u * 1001 / 2);
        threads_left = allowed;
        const int fd = rt->open(folder / "data");
        std::vector<std::uint64_t> rows(2000);
        for (std::uint64_t i = 0; i < rows.size(); ++i) rows[i] = mix64(i) % 65536;
        std::vector<std::uint8_t> out(rows.size() * 64);
        EXPECT_EQ(rt->gather(fd, {64, 64, 0}, rows.data(), rows.size(), out.data()), 2000);
        for (std::uint64_t i = 0; i < rows.size(); ++i)
            ASSERT_EQ(out[i * 64 + 9], pattern_byte(5, rows[i] * 64 + 9));
        EXPECT_EQ(rt->close(fd), 0);
        threads_left = allowed;
        std::unique_ptr<file_region> region;
        EXPECT_TRUE(map_region(*rt, folder / "data", 0, 0, protection::read, {}, region).ok());
        EXPECT_EQ(static_cast<const std::uint8_t*>(region->data())[12345], pattern_byte(5, 12345));
    }
    threads_left = 1 << 30;
}

// A refusal is one of the moment: the read behind an open that waits is served once there may be
// threads again.
TEST(thread_limit, a_helper_that_was_refused_is_made_later) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(6, 10 * page));
    write_file(folder / "more", pattern(7, page));
    fault::faulty_environment disk;
    std::mutex mutex;
    std::string log;
    options o = small_options(folder, 1);
    o.service_threads = 1;
    o.most_service_threads = 2;
    o.request_wait_ms = 120000;
    o.log = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        log += line + "\n";
    };
    host::runtime_hooks hooks;
    hooks.env = &disk;
    hooks.thread_retry_ns = 10'000'000;
    const auto refusals = [&] {
        const std::lock_guard lock(mutex);
        std::size_t count = 0;
        for (std::size_t at = 0; (at = log.find("no more service threads", at)) != log.npos; ++at)
            ++count;
        return count;
    };
    std::unique_ptr<runtime> rt;
    std::atomic<int> step{0}, fd{-1}, opened{-1}, byte{-1};
    std::thread opener([&] {
        step.wait(0);
        opened = open(lane{}, rt->ref(), "more");
    });
    std::thread reader([&] {
        step.wait(0);
        step.wait(1);
        std::uint8_t got = 0;
        byte = read(lane{}, rt->ref(), fd, &got, 1, 5 * page) == 1 ? got : -2;
    });
    threads_left = 2;  // a service thread and one that beats, and no helper from the begin on
    rt = make_runtime(o, hooks);
    fd = open(lane{}, rt->ref(), "data");
    EXPECT_GE(fd, 0);
    disk.stall(fault::call_find);
    step = 1;
    step.notify_all();
    EXPECT_TRUE(soon([&] { return disk.stalled() == 1; }));
    step = 2;
    step.notify_all();
    EXPECT_TRUE(soon([&] { return refusals() != 0; }));
    EXPECT_EQ(byte, -1);
    const int tries = threads_left;
    EXPECT_TRUE(soon([&] { return threads_left < tries; })) << "no helper is tried again";
    EXPECT_EQ(refusals(), 1u) << "it is said once";
    threads_left = 1 << 30;
    reader.join();
    EXPECT_EQ(byte, pattern_byte(6, 5 * page));
    {
        const std::lock_guard lock(mutex);
        EXPECT_NE(log.find("RLIMIT_NPROC"), std::string::npos) << log;
        EXPECT_NE(log.find("pids.max"), std::string::npos) << log;
    }
    disk.release();
    opener.join();
    for (const int each : {fd.load(), opened.load()}) EXPECT_EQ(close(lane{}, rt->ref(), each), 0);
}

// The caller, which does the part of a missing thread, waits for the threads there are.
TEST(thread_limit, an_exception_in_the_part_of_the_caller_comes_when_all_have_ended) {
    const temporary_folder folder;
    options o = small_options(folder);
    o.worker_threads = 4;
    const auto rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    for (const int allowed : {0, 2}) {
        std::atomic<std::uint32_t> ended{0};
        threads_left = allowed;
        EXPECT_THROW(rt->run_on_workers([&](std::uint32_t worker, std::uint32_t) {
            if (worker == 2) throw std::runtime_error("of a worker");
            ++ended;
        }),
                     std::runtime_error);
        EXPECT_EQ(ended, 3u);
    }
    threads_left = 1 << 30;
}

}  // namespace penstock::test
