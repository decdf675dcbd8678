// Reads of programs that the cache of open and read answers (peers/cached_reads.hpp), with an
// operating system that says it has nothing of the file in memory.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "device/loan.hpp"
#include "fault/faulty_environment.hpp"
#include "region/program_reads.hpp"
#include "region/support.hpp"

namespace penstock::test::cached_reads {

namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t page = 4096, mib = 1 << 20, file_bytes = mib + 100;

bytes part_of(const bytes& whole, std::uint64_t offset, std::uint64_t count) {
    const std::uint64_t end = std::min<std::uint64_t>(offset + count, whole.size()),
                        begin = std::min(offset, end);
    return {whole.begin() + static_cast<std::ptrdiff_t>(begin),
            whole.begin() + static_cast<std::ptrdiff_t>(end)};
}

// A device that begins loans when the test says so, on a clock of the test's, with the desks of a
// GPU (device/loan.hpp).
class slow_device final : public host::page_lender {
public:
    slow_device() : memory_(host::loan_desks::count * host::loan_desks::desk_bytes) {
        desks_.place(memory_.data());
    }

    bool begin_loan(const runtime_ref& fs, host::loan& loan) override {
        host::loan_desk* const desk = desks_.take(loan, now_ns);
        if (desk == nullptr) return false;
        ++begun;
        loan.desk = desk;
        waiting_.push_back({fs, loan.order});
        if (meanwhile) meanwhile();
        if (!busy) do_all();
        if (busy && half_done) engine::tell_part(loan.order.states, engine::part_coming);
        for (std::uint32_t part = 1; busy && half_done && part < loan.order.parts(); ++part)
            engine::lend_part(lane{}, fs.view, loan.order, part);
        return true;
    }
    void end_loan(host::loan& loan) override {
        desks_.give_back(*static_cast<host::loan_desk*>(loan.desk), true, now_ns);
    }
    void end_late_loans() override { desks_.end_late(); }
    // What was begun and not done.
    void do_all() {
        for (const auto& [fs, order] : waiting_)
            for (std::uint32_t part = 0; part < order.parts(); ++part)
                engine::lend_part(lane{}, fs.view, order, part);
        waiting_.clear();
    }

    std::uint64_t now_ns = 1'000'000'000;
    bool busy = false, half_done = false;  // it does nothing; or all but the first part
    int begun = 0;
    std::function<void()> meanwhile;  // between the begin of a loan and its copying

private:
    std::vector<std::byte> memory_;
    host::loan_desks desks_;
    std::vector<std::pair<runtime_ref, engine::lend_order>> waiting_;
};

class cached_reads : public testing::Test {
protected:
    cached_reads() {
        write_file(path_, content_);
        let_files_settle();
        fd_ = ::open(path_.c_str(), O_RDONLY);
        options_ = region_runtime(folder_, backend::cpu);
        options_.cache_bytes = 2 * mib;
        hooks_.env = &env_;
        env_.say_cached(0);
    }
    ~cached_reads() override { ::close(fd_); }

    void make() { runtime_ = make_runtime(options_, hooks_); }
    void read_in_kernel(std::uint64_t offset, std::uint64_t count) {
        read_in_kernel(path_, content_, offset, count);
    }
    void read_in_kernel(const std::string& path, const bytes& expected, std::uint64_t offset,
                        std::uint64_t count) {
        const int file = runtime_->open(path);
        ASSERT_GE(file, 0);
        bytes got(count);
        const std::int64_t read = runtime_->read(file, got.data(), static_cast<std::int64_t>(count),
                                                 static_cast<std::int64_t>(offset));
        got.resize(static_cast<std::size_t>(std::max<std::int64_t>(read, 0)));
        EXPECT_TRUE(got == part_of(expected, offset, count));
        EXPECT_EQ(runtime_->close(file), 0);
    }
    std::uint64_t expect_read(int fd, const bytes& expected, std::uint64_t offset,
                              std::uint64_t count) const {
        std::uint64_t from_devices = 0;
        EXPECT_TRUE(read_as_program(key_of(fd), fd, offset, count, from_devices) ==
                    part_of(expected, offset, count))
            << "from " << offset << ", " << count;
        return from_devices;
    }
    std::uint64_t expect_read(std::uint64_t offset, std::uint64_t count) const {
        return expect_read(fd_, content_, offset, count);
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    bytes content_ = pattern(7, file_bytes);
    fault::faulty_environment env_;
    slow_device device_;
    host::runtime_hooks hooks_;
    options options_;
    std::unique_ptr<runtime> runtime_;
    int fd_ = -1;
};

}  // namespace

TEST_F(cached_reads, what_the_cache_has_comes_from_it_and_the_rest_from_the_file) {
    make();
    EXPECT_EQ(expect_read(0, page), 0u) << "a file that was never opened";
    read_in_kernel(0, 256 << 10);
    read_in_kernel(mib, 100);
    EXPECT_EQ(expect_read(0, page), page);
    EXPECT_EQ(expect_read(100, 5000), 5000u);
    EXPECT_EQ(expect_read(300 << 10, page), 0u);
    EXPECT_EQ(expect_read((256 << 10) - 8000, 16384), 8000u);
    EXPECT_EQ(expect_read(200 << 10, mib - (200 << 10)), 56u << 10);
    EXPECT_EQ(expect_read(file_bytes - 50, page), 50u);
    EXPECT_EQ(expect_read(mib - page, 2 * page), 100u);
    EXPECT_EQ(expect_read(0, 2 * mib), 0u) << "more than a desk has room for";
    for (const int said : {1, -ENOSYS}) {  // a file that was just written is in memory, where that
                                           // has to be found out by a mapping
        env_.say_cached(said);
        EXPECT_EQ(expect_read(0, page), 0u) << said;
    }
}

TEST_F(cached_reads, pages_of_every_size) {
    for (const std::uint64_t size : {std::uint64_t{512}, std::uint64_t{65536}}) {
        options_.page_bytes = size;
        make();
        read_in_kernel(65536, 65536);
        EXPECT_EQ(expect_read(65536 - 700, 1400), 700u) << size;
        EXPECT_EQ(expect_read(70000, 3000), 3000u) << size;
        read_in_kernel(mib, 100);
        EXPECT_EQ(expect_read(mib - 300, 1000), 100u) << size;
        runtime_.reset();
    }
}

TEST_F(cached_reads, what_left_the_cache_comes_from_the_host_tier) {
    options_.cache_bytes = 16 * page;
    options_.tier_bytes = 2 * mib;
    options_.window_bytes = 4 * mib;
    make();
    const int file = runtime_->open(path_);
    ASSERT_EQ(runtime_->advise(file, advice::random), 0);
    bytes got(page);
    for (std::uint64_t at = 0; at < mib / 2; at += page)
        ASSERT_EQ(runtime_->read(file, got.data(), page, static_cast<std::int64_t>(at)),
                  static_cast<std::int64_t>(page));
    EXPECT_EQ(expect_read(0, mib / 2), mib / 2) << "16 pages of it are in the cache";
    EXPECT_EQ(expect_read(mib / 4, mib / 2), mib / 4);
    EXPECT_EQ(runtime_->close(file), 0);
    EXPECT_EQ(expect_read(0, mib / 2), mib / 2);
}

TEST_F(cached_reads, a_file_that_changed_is_read_itself) {
    make();
    read_in_kernel(0, file_bytes);
    EXPECT_EQ(expect_read(0, 8192), 8192u);
    std::fill_n(content_.begin() + 50, 3, 200);
    patch_file(path_, 50, bytes(3, 200));
    EXPECT_EQ(expect_read(0, 8192), 0u);
    let_files_settle();
    EXPECT_EQ(expect_read(0, 8192), 0u);
    read_in_kernel(0, file_bytes);
    EXPECT_EQ(expect_read(0, 8192), 8192u);
    std::filesystem::resize_file(path_, 6000);
    std::filesystem::resize_file(path_, file_bytes);
    std::fill(content_.begin() + 6000, content_.end(), 0);
    let_files_settle();
    EXPECT_EQ(expect_read(4096, 8192), 0u) << "as long as before, but for its times";
    std::filesystem::resize_file(path_, 5000);
    content_.resize(5000);
    EXPECT_EQ(expect_read(4096, 8192), 0u);
}

TEST_F(cached_reads, a_program_that_writes_is_at_it_until_it_has_closed) {
    make();
    read_in_kernel(0, 65536);
    EXPECT_EQ(expect_read(0, 8192), 8192u);
    {
        const region::program_write under_way(file_of(key_of(fd_)),
                                              region::program_access::kind::direct, 0, 1);
        EXPECT_EQ(expect_read(0, 8192), 0u);
    }
    host::file_facts facts;
    ASSERT_EQ(env_.facts(fd_, facts), 0);
    if (facts.writing == host::writers::unknown)
        return;  // this file system does not tell of writers
    const int writer = ::open(path_.c_str(), O_RDWR);
    EXPECT_EQ(expect_read(0, 8192), 0u);
    ::close(writer);
    EXPECT_EQ(expect_read(0, 8192), 8192u);
}

TEST_F(cached_reads, another_file_of_the_name_is_another_file) {
    make();
    read_in_kernel(0, 65536);
    const bytes other = pattern(8, file_bytes);
    write_file(folder_ / "g", other);
    std::filesystem::rename(folder_ / "g", path_);
    let_files_settle();
    const int fresh = ::open(path_.c_str(), O_RDONLY);
    EXPECT_EQ(expect_read(fresh, other, 0, 8192), 0u);
    EXPECT_EQ(expect_read(0, 8192), 0u) << "the old one lost its name, which changed its times";
    read_in_kernel(path_, other, 0, 65536);
    EXPECT_EQ(expect_read(fresh, other, 0, 8192), 8192u);
    ::close(fresh);
}

TEST_F(cached_reads, a_file_that_a_kernel_writes_is_not_answered_for) {
    make();
    read_in_kernel(0, 65536);
    const int writer = runtime_->open(path_, open_read_write);
    ASSERT_GE(writer, 0);
    EXPECT_EQ(expect_read(0, 8192), 0u) << "before the first write";
    const bytes fresh(3, 200);
    EXPECT_EQ(runtime_->write(writer, fresh.data(), 3, 50), 3);
    EXPECT_EQ(expect_read(0, 8192), 0u) << "what the file does not have yet";
    EXPECT_EQ(runtime_->close(writer), 0);
    std::copy(fresh.begin(), fresh.end(), content_.begin() + 50);
    let_files_settle();
    EXPECT_EQ(expect_read(0, 8192), 0u) << "until it is opened again";
    read_in_kernel(0, 65536);
    EXPECT_EQ(expect_read(0, 8192), 8192u);
}

TEST_F(cached_reads, a_kernel_that_begins_to_write_while_pages_are_copied_is_found_out) {
    hooks_.lender = &device_;
    make();
    read_in_kernel(0, 65536);
    int writer = -1;
    device_.meanwhile = [&] {
        writer = runtime_->open(path_, open_read_write);
        EXPECT_EQ(runtime_->write(writer, bytes(3, 200).data(), 3, page + 50), 3);
    };
    EXPECT_EQ(expect_read(0, 8192), 0u);
    EXPECT_EQ(runtime_->close(writer), 0);
}

TEST_F(cached_reads, a_read_of_what_is_missing_that_fails_is_left_to_the_file) {
    make();
    read_in_kernel(0, 65536);
    for (const int error : {-EIO, 0}) {
        fault::fault_plan plan;
        plan.calls = fault::call_read;
        plan.nth = 1;
        plan.error = error;
        env_.set(plan);
        EXPECT_EQ(expect_read(65536 - page, 2 * page), 0u) << error;
        EXPECT_EQ(expect_read(65536 - page, 2 * page), page) << error;
    }
    fault::fault_plan plan;
    plan.longest_read = 100;
    env_.set(plan);
    EXPECT_EQ(expect_read(65536 - page, 2 * page), page);
}

// Every byte of a file that is ten times as large as cache and tier, while kernels and programs
// read it.
TEST_F(cached_reads, nothing_wrong_is_read_while_kernels_evict_everything) {
    options_.cache_bytes = 16 * page;
    options_.tier_bytes = 16 * page;
    options_.window_bytes = 2 * mib;
    make();
    std::vector<std::thread> all;
    for (std::uint64_t kernel = 0; kernel < 2; ++kernel)
        all.emplace_back([this, kernel] {
            for (std::uint64_t round = 0; round < 6; ++round)
                for (std::uint64_t at = 0; at < mib; at += 65536)
                    read_in_kernel((at + kernel * mib / 2) % mib, 65536);
        });
    for (std::uint64_t program = 0; program < 2; ++program)
        all.emplace_back([this, program] {
            for (std::uint64_t i = 0; i < 600; ++i)
                expect_read(mix64(2 * i + program) % (mib / page) * page, (i % 8 + 1) * page);
        });
    for (std::thread& thread : all) thread.join();
    read_in_kernel(0, page);
    EXPECT_EQ(expect_read(0, page), page);
}

TEST_F(cached_reads, a_runtime_may_end_while_programs_read) {
    std::atomic<bool> over{false};
    std::vector<std::thread> programs;
    for (int i = 0; i < 2; ++i)
        programs.emplace_back([&] {
            while (!over) expect_read(0, 65536);
        });
    for (int round = 0; round < 10; ++round) {
        make();
        read_in_kernel(0, 65536);
        runtime_.reset();
    }
    over = true;
    for (std::thread& thread : programs) thread.join();
    EXPECT_EQ(expect_read(0, page), 0u);
}

TEST_F(cached_reads, a_device_that_is_busy_is_left_alone_for_a_while) {
    hooks_.lender = &device_;
    make();
    read_in_kernel(0, 65536);
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(expect_read(65536 - page, 2 * page), page) << "desks are given back";
    device_.busy = true;
    device_.begun = 0;
    EXPECT_EQ(expect_read(0, 8192), 0u);
    EXPECT_EQ(expect_read(0, 8192), 0u);
    EXPECT_EQ(device_.begun, 1) << "it was asked again at once";
    device_.half_done = true;
    constexpr int desks = host::loan_desks::count;
    for (int i = 1; i < 2 * desks; ++i) {
        device_.now_ns += host::quiet_after_late_ns;
        EXPECT_EQ(expect_read(0, 8192), 0u);
    }
    EXPECT_EQ(device_.begun, desks) << "each late loan keeps its desk";
    device_.busy = false;
    device_.do_all();
    device_.end_late_loans();
    device_.now_ns += host::quiet_after_late_ns;
    EXPECT_EQ(expect_read(0, 8192), 8192u);
    EXPECT_EQ(device_.begun, desks + 1);
}

// A late loan looks at the file's words, so no other file gets them before it has ended.
TEST_F(cached_reads, a_file_that_is_lent_keeps_its_slot_until_the_late_loan_ends) {
    hooks_.lender = &device_;
    options_.max_files = 16;
    options_.frame_wait_ms = 100;
    make();
    read_in_kernel(0, 65536);
    device_.busy = true;
    EXPECT_EQ(expect_read(0, 8192), 0u);
    const auto other = [this](std::uint32_t i) { return folder_ / ("g" + std::to_string(i)); };
    for (std::uint32_t i = 0; i < options_.max_files; ++i) write_file(other(i), bytes(5, 1));
    for (std::uint32_t i = 1; i < options_.max_files; ++i) ASSERT_GE(runtime_->open(other(i)), 0);
    EXPECT_EQ(runtime_->open(other(0)), -ENFILE);
    device_.do_all();
    while (runtime_->open(other(0)) == -ENFILE) {
    }
}

}  // namespace penstock::test::cached_reads
