// The page by which other programs read the statistics of a runtime.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>

#include "os/statistics_page.hpp"
#include "runtime/statistics_publisher.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using namespace host;

constexpr std::uint64_t words = most_statistics_words;

std::vector<std::uint64_t> all_of(std::uint64_t value) {
    return std::vector<std::uint64_t>(words, value);
}

// As another program sees it: by a descriptor of its own, and a mapping of its own.
statistics_page_layout* layout_of(const statistics_page& page) {
    void* const begin =
        ::mmap(nullptr, statistics_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.fd(), 0);
    EXPECT_NE(begin, MAP_FAILED);
    return static_cast<statistics_page_layout*>(begin);
}

std::vector<found_statistics> pages_of(int pid) {
    std::vector<found_statistics> out;
    EXPECT_EQ(find_statistics(out, {pid}), 0);
    return out;
}
std::vector<found_statistics> own_pages() { return pages_of(::getpid()); }

// Waits for the answer as a program would, for as long as a busy machine may need.
bool is_answered(statistics_reader& reader, statistics_snapshot& out) {
    const std::uint64_t ticket = reader.ask();
    for (int i = 0; i < 20000; ++i) {
        if (reader.read(out) == 0 && static_cast<std::int64_t>(out.answered - ticket) >= 0)
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

// As in a container that allows no memfd_create; for good, and for the children too.
bool forbid_sealed_memory() {
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {sizeof steps / sizeof steps[0], steps};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Something else whose link below /proc is that of a page, and of which this process has no more
// than the path: as a container may have it, in which the name lies in the root. None without the
// rights for a file system of its own.
owned_fd named_as_a_page(const char* file_system, mode_t kind) {
    const std::string name = "memfd:penstock-statistics";
    constexpr int create = 6;  // FSCONFIG_CMD_CREATE
    const owned_fd made(static_cast<int>(::syscall(SYS_fsopen, file_system, 0)));
    if (!made || ::syscall(SYS_fsconfig, made.get(), create, nullptr, nullptr, 0) != 0) return {};
    const owned_fd root(static_cast<int>(::syscall(SYS_fsmount, made.get(), 0, 0)));
    if (!root || ::mknodat(root.get(), name.c_str(), kind | 0600, makedev(1, 3)) != 0) return {};
    owned_fd out(::openat(root.get(), name.c_str(), O_PATH | O_CLOEXEC));
    ::unlinkat(root.get(), name.c_str(), 0);
    return out;
}

bool is_mapped_here(const char* name) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(name) != std::string::npos) return true;
    return false;
}

}  // namespace

TEST(statistics_page, reader_finds_names_words_and_the_number_answered) {
    statistics_page page;
    ASSERT_EQ(page.make("a\nb[255]\n", words), 0);
    statistics_reader reader;
    ASSERT_EQ(reader.open(page.fd()), 0);
    EXPECT_EQ(reader.pid(), static_cast<std::uint64_t>(::getpid()));
    EXPECT_EQ(reader.start_ticks(), start_ticks_of(::getpid()));
    EXPECT_EQ(reader.names(), "a\nb[255]\n");
    EXPECT_EQ(page.asked(), 0u);
    EXPECT_EQ(reader.ask(), 1u);
    EXPECT_EQ(reader.ask(), 2u);
    EXPECT_EQ(page.asked(), 2u);
    page.publish(all_of(7), 2);
    statistics_snapshot seen;
    ASSERT_EQ(reader.read(seen), 0);
    EXPECT_EQ(seen.words, all_of(7));
    EXPECT_EQ(seen.answered, 2u);
    EXPECT_GT(seen.taken_ns, 0u);
}

// The canary of a torn publication: an owner that was stopped in the middle. Half of the words are
// new, so a reader that did not look at the number would give them.
TEST(statistics_page, page_under_change_is_given_up_after_some_tries) {
    statistics_page page;
    ASSERT_EQ(page.make("a[256]\n", words), 0);
    page.publish(all_of(1), 0);
    statistics_page_layout* const raw = layout_of(page);
    ++raw->number;
    for (std::uint64_t i = 0; i < words / 2; ++i) raw->words[i] = 2;
    statistics_reader reader;
    ASSERT_EQ(reader.open(page.fd()), 0);
    statistics_snapshot seen;
    EXPECT_EQ(reader.read(seen), -EAGAIN);
    ++raw->number;
    EXPECT_EQ(reader.read(seen), 0);
    EXPECT_NE(seen.words.front(), seen.words.back()) << "the canary: these words are torn";
    ::munmap(raw, statistics_page_bytes);
}

TEST(statistics_page, reader_beside_the_owner_finds_whole_publications) {
    statistics_page page;
    ASSERT_EQ(page.make("a[256]\n", words), 0);
    std::atomic<bool> ended{false};
    std::thread owner([&] {
        for (std::uint64_t i = 1; i <= 200'000; ++i) page.publish(all_of(i), i);
        ended = true;
    });
    statistics_reader reader;
    EXPECT_EQ(reader.open(page.fd()), 0);
    statistics_snapshot seen;
    std::uint64_t torn = 0, last = 0, back = 0;
    while (!ended) {
        if (reader.read(seen) != 0) continue;
        if (seen.words != all_of(seen.words.front()) || seen.answered != seen.words.front()) ++torn;
        if (seen.words.front() < last) ++back;
        last = seen.words.front();
    }
    owner.join();
    EXPECT_EQ(torn, 0u);
    EXPECT_EQ(back, 0u);
    ASSERT_EQ(reader.read(seen), 0);
    EXPECT_EQ(seen.words, all_of(200'000));
}

TEST(statistics_page, memory_that_is_no_page_is_refused) {
    statistics_reader reader, other, third;
    const owned_fd loose(::memfd_create("penstock-statistics", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(loose.get(), statistics_page_bytes), 0);
    EXPECT_EQ(reader.open(loose.get()), -EPERM) << "it may become shorter";
    shared_memory small;
    ASSERT_EQ(small.make(100, "penstock-statistics", true), 0);
    EXPECT_EQ(other.open(small.fd()), -EMSGSIZE);
    shared_memory empty;
    ASSERT_EQ(empty.make(statistics_page_bytes, "penstock-statistics", true), 0);
    EXPECT_EQ(third.open(empty.fd()), -EPROTO);
}

// There may be none for what was sealed: the first load from it would end the reader by SIGBUS.
TEST(statistics_page, huge_pages_are_refused) {
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    const owned_fd huge(
        ::memfd_create("penstock-statistics", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!huge) GTEST_SKIP() << "no huge pages here";
    ASSERT_EQ(::ftruncate(huge.get(), 1 << 30), 0);  // whole ones, whatever their size
    ASSERT_EQ(::fcntl(huge.get(), F_ADD_SEALS, seals), 0);
    int code = 0;
    const std::byte* const begin = map_memory_of(huge.get(), statistics_page_bytes, code);
    EXPECT_EQ(begin, nullptr);
    EXPECT_EQ(code, -EOPNOTSUPP);
    if (begin != nullptr) return unmap_memory_of(begin, statistics_page_bytes);
    EXPECT_TRUE(own_pages().empty());
}

// To open a pipe wakes its other end, and to open a device may do anything.
TEST(statistics_page, a_look_opens_nothing_but_memory) {
    const std::vector<std::pair<const char*, mode_t>> places = {
        {"tmpfs", S_IFIFO}, {"tmpfs", S_IFCHR}, {"ramfs", S_IFREG}};
    for (const auto& [file_system, kind] : places) {
        const owned_fd other = named_as_a_page(file_system, kind);
        if (!other) GTEST_SKIP() << "no file system of its own here";
        const std::string link = "/proc/self/fd/" + std::to_string(other.get());
        const owned_fd opens(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
        ASSERT_GE(::inotify_add_watch(opens.get(), link.c_str(), IN_OPEN), 0);
        EXPECT_TRUE(own_pages().empty());
        alignas(inotify_event) char event[512];
        EXPECT_EQ(::read(opens.get(), event, sizeof event), -1) << std::oct << kind;
    }
}

TEST(statistics_page, bounds_of_a_page_are_not_believed) {
    statistics_page page;
    ASSERT_EQ(page.make("hits\n", 1), 0);
    statistics_page_layout* const raw = layout_of(page);
    raw->word_count = raw->names_bytes = UINT64_MAX;
    statistics_reader reader;
    ASSERT_EQ(reader.open(page.fd()), 0);
    statistics_snapshot seen;
    ASSERT_EQ(reader.read(seen), 0);
    EXPECT_EQ(seen.words.size(), most_statistics_words);
    EXPECT_EQ(reader.names().size(), statistics_page_bytes - statistics_names_at);
    ::munmap(raw, statistics_page_bytes);
}

TEST(published_statistics, words_come_back_by_their_names) {
    published_statistics some;
    some.page_bytes = 4096;
    some.counted.hits = 3;
    some.counted.batches = 5;
    some.counted.batch_size[15] = 6;
    some.counted.latency_ns[31] = 7;
    const std::vector<std::uint64_t> all = published_words(some);
    EXPECT_LE(all.size(), most_statistics_words);
    EXPECT_LE(published_names().size(), statistics_page_bytes - statistics_names_at);
    const published_statistics back = published_from(published_names(), all);
    EXPECT_EQ(back.page_bytes, 4096u);
    EXPECT_EQ(back.counted.to_json(), some.counted.to_json());
}

TEST(published_statistics, page_of_another_version_is_read_as_far_as_it_goes) {
    const std::vector<std::uint64_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_EQ(published_from("news[3]\nhits\nlatency_ns[2]\n", numbers).counted.hits, 4u);
    EXPECT_EQ(published_from("news[3]\nhits\nlatency_ns[2]\n", numbers).counted.latency_ns[1], 6u);
    EXPECT_EQ(published_from("batch_size[99]\nhits\n", numbers).counted.hits, 0u);
    EXPECT_EQ(published_from("batch_size[]\nhits\n", numbers).counted.hits, 0u);
    EXPECT_EQ(published_from("batch_size[99999999999999999999]\nhits\n", numbers).counted.hits, 0u);
    EXPECT_EQ(published_from(std::string(4096, '\0'), numbers).counted.hits, 0u);
    EXPECT_EQ(published_from("hits", numbers).counted.hits, 1u);
    // Nothing behind the numbers of the page is taken for one of them.
    const std::span one(numbers.data(), 1), two(numbers.data(), 2);
    EXPECT_EQ(published_from("hits\nmisses\n", one).counted.misses, 0u);
    EXPECT_EQ(published_from("news[3]\nhits\n", two).counted.hits, 0u);
    EXPECT_EQ(published_from("batch_size[2]\n", two).counted.batch_size[1], 2u);
    EXPECT_EQ(published_from("batch_size[2]\n", two).counted.batch_size[2], 0u);
}

TEST(published_statistics, runtime_answers_with_what_it_counted) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(3, 16 * page));
    const auto rt = make_runtime(small_options(folder));
    ASSERT_NE(rt, nullptr);
    std::vector<found_statistics> found = own_pages();
    ASSERT_EQ(found.size(), rt->device_count());
    statistics_snapshot seen;
    ASSERT_EQ(found[0].page.read(seen), 0);
    const published_statistics first = published_from(found[0].page.names(), seen.words);
    EXPECT_EQ(first.page_bytes, page);
    EXPECT_GT(first.cache_pages, 0u);
    EXPECT_EQ(first.counted.misses, 0u);
    const int fd = rt->open(folder / "data");
    ASSERT_GE(fd, 0);
    std::vector<std::uint8_t> got(16 * page);
    for (int i = 0; i < 2; ++i)
        ASSERT_EQ(rt->read(fd, got.data(), 16 * page, 0), static_cast<std::int64_t>(16 * page));
    ASSERT_TRUE(is_answered(found[0].page, seen));
    const published_statistics now = published_from(found[0].page.names(), seen.words);
    EXPECT_EQ(now.counted.misses, 16u);
    EXPECT_EQ(now.counted.hits, rt->stats(0).hits);
    EXPECT_EQ(now.counted.request_loads, 16u);
    EXPECT_EQ(now.counted.resident_pages, 16u);
    // It answers each time.
    EXPECT_TRUE(is_answered(found[0].page, seen));
    EXPECT_EQ(rt->close(fd), 0);
}

TEST(published_statistics, nothing_is_left_after_the_runtime_or_without_the_option) {
    const temporary_folder folder;
    options o = small_options(folder);
    {
        const auto rt = make_runtime(o);
        ASSERT_NE(rt, nullptr);
        EXPECT_EQ(own_pages().size(), rt->device_count());
    }
    EXPECT_TRUE(own_pages().empty());
    o.publish_statistics = false;
    const auto rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    EXPECT_TRUE(own_pages().empty());
}

// The child has the descriptor, but neither the memory nor the page's number.
TEST(published_statistics, child_of_fork_neither_writes_nor_is_shown) {
    const temporary_folder folder;
    const auto rt = make_runtime(small_options(folder));
    ASSERT_NE(rt, nullptr);
    EXPECT_TRUE(is_mapped_here("penstock-statistics"));
    int ready[2], go[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(go), 0);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        char mark = is_mapped_here("penstock-statistics") ? 'm' : '-';
        if (::write(ready[1], &mark, 1) != 1 || ::read(go[0], &mark, 1) != 1) ::_exit(1);
        ::_exit(0);
    }
    char mark = 0;
    EXPECT_EQ(::read(ready[0], &mark, 1), 1);
    EXPECT_EQ(mark, '-');
    EXPECT_TRUE(pages_of(child).empty());
    EXPECT_EQ(own_pages().size(), rt->device_count());
    EXPECT_EQ(::write(go[1], &mark, 1), 1);
    int state = 0;
    EXPECT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_EQ(state, 0);
    for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
}

// What stands in the way is said once, also of several devices, and the runtime works.
TEST(published_statistics, runtime_works_on_where_there_is_no_sealed_memory) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(3, page));
    std::fflush(nullptr);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (!forbid_sealed_memory()) ::_exit(77);
        options o = small_options(folder);
        int said = 0;
        o.log = [&said](const std::string& line) {
            if (line.find("statistics: ") != std::string::npos) ++said;
        };
        std::unique_ptr<runtime> rt;
        if (!runtime::make(o, rt)) ::_exit(1);
        const int fd = rt->open(folder / "data");
        std::uint8_t byte = 0;
        if (rt->read(fd, &byte, 1, 0) != 1 || byte != pattern_byte(3, 0)) ::_exit(2);
        if (rt->stats().misses != 1 || said != 1 || !own_pages().empty()) ::_exit(3);
        rt.reset();
        ::_exit(0);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFEXITED(state));
    if (WEXITSTATUS(state) == 77) GTEST_SKIP() << "no filter of system calls here";
    EXPECT_EQ(WEXITSTATUS(state), 0);
}

// A page that a process holds and another made, as after fork() or by a hand-over.
TEST(published_statistics, page_with_another_process_in_it_is_not_shown) {
    statistics_page page;
    ASSERT_EQ(page.make("hits\n", 1), 0);
    EXPECT_EQ(own_pages().size(), 1u);
    statistics_page_layout* const raw = layout_of(page);
    raw->start_ticks += 1;
    EXPECT_TRUE(own_pages().empty()) << "the number of a process that ended was given again";
    raw->start_ticks -= 1;
    raw->pid += 1;
    EXPECT_TRUE(own_pages().empty());
    ::munmap(raw, statistics_page_bytes);
}

}  // namespace penstock::test
