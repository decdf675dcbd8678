// A process that can make no more threads: creation gives -EAGAIN and leaves nothing behind, and
// work that was to be shared is done by the threads that are there.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <stdexcept>

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
