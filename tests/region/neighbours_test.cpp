// Pages that come from the memory of another region of the file (region/fetch.cpp).
//
// Where bytes come from shows by bytes that the file got and that Penstock was not told of.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "region/program_reads.hpp"
#include "region/shared_home.hpp"
#include "region/support.hpp"

namespace penstock::test::region_neighbours {

namespace {

using bytes = std::vector<std::uint8_t>;
using region::page_bytes;
using region::program_access;
using region::program_write;

constexpr std::uint64_t file_pages = 700, file_bytes = file_pages * page_bytes;
constexpr region_options by_page{.outside_writers = false};

class region_neighbours : public testing::Test {
protected:
    void SetUp() override {
        write_file(path_, content_);
        let_files_settle();
        fd_ = ::open(path_.c_str(), O_RDWR);
        key_ = key_of(fd_);
        host::runtime_hooks hooks;
        hooks.env = &env_;
        options o = region_runtime(folder_, backend::cpu);
        o.log = [this](const std::string& line) { log_ += line + "\n"; };
        runtime_ = make_runtime(o, hooks);
    }
    void TearDown() override { ::close(fd_); }

    std::unique_ptr<file_region> map(protection access, const region_options& settings = by_page,
                                     std::uint64_t offset = 0, std::uint64_t count = 0) {
        std::unique_ptr<file_region> out;
        const status s = map_region(*runtime_, path_, offset, count, access, settings, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    // The file gets other bytes, which no part of Penstock is told of.
    void change_unheard() const {
        const bytes other = pattern(8, file_bytes);
        ASSERT_EQ(::pwrite(fd_, other.data(), other.size(), 0), static_cast<ssize_t>(file_bytes));
    }
    void change(file_region& r, std::uint64_t page) {
        std::uint8_t& byte = content_[page * page_bytes + 17];
        byte ^= 0x5a;
        poke(r, backend::cpu, page * page_bytes + 17, {byte});
    }
    [[nodiscard]] static bytes all_of(file_region& r) {
        return peek(r, backend::cpu, 0, r.size_bytes());
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    bytes content_ = pattern(7, file_bytes);
    fault::faulty_environment env_;
    std::string log_;
    std::unique_ptr<runtime> runtime_;
    region::file_key key_;
    int fd_ = -1;
};

}  // namespace

TEST_F(region_neighbours, a_region_is_filled_from_another_and_not_from_the_file) {
    for (const protection access : {protection::read, protection::read_write}) {
        const auto first = map(access);
        EXPECT_EQ(first->traffic().pages_from_neighbours, 0u);
        env_.set({.calls = fault::call_read});
        const auto second = map(protection::read_write);
        EXPECT_EQ(env_.calls(), 0u);
        EXPECT_EQ(second->traffic().pages_fetched, file_pages);
        EXPECT_EQ(second->traffic().pages_from_neighbours, file_pages);
        EXPECT_TRUE(all_of(*second) == content_);
        EXPECT_EQ(second->release(), 0) << "what was copied is its base too";
    }
    EXPECT_EQ(log_, "");
}

TEST_F(region_neighbours, released_changes_come_from_the_region_that_made_them) {
    const auto writer = map(protection::read_write), reader = map(protection::read),
               other = map(protection::read_write);
    for (std::uint64_t page = 0; page < file_pages; page += 3) change(*writer, page);
    EXPECT_EQ(writer->release(), 234);
    // Of its own: a byte that the writer released, and another.
    bytes of_other = content_;
    for (const std::uint64_t at : {3 * page_bytes + 17, 6 * page_bytes + 18}) {
        of_other[at] ^= 0x33;
        poke(*other, backend::cpu, at, {of_other[at]});
    }
    env_.set({.calls = fault::call_read});
    EXPECT_EQ(reader->acquire(), 234);
    EXPECT_TRUE(all_of(*reader) == content_);
    EXPECT_EQ(other->acquire(), 234);
    EXPECT_EQ(env_.calls(), 0u);
    EXPECT_EQ(reader->traffic().pages_from_neighbours, file_pages + 234);
    EXPECT_TRUE(all_of(*other) == of_other) << "its own changes stay";
    EXPECT_EQ(other->release(), 2);
    EXPECT_EQ(reader->acquire(), 2);
    EXPECT_TRUE(all_of(*reader) == of_other);
}

TEST_F(region_neighbours, what_kernels_changed_and_did_not_release_is_not_taken) {
    const auto writer = map(protection::read_write);
    poke(*writer, backend::cpu, 0, bytes(20 * page_bytes, 9));
    const auto reader = map(protection::read);
    EXPECT_EQ(reader->traffic().pages_from_neighbours, file_pages);
    EXPECT_TRUE(all_of(*reader) == content_);
}

TEST_F(region_neighbours, a_region_that_is_outdated_is_not_a_source) {
    auto writer = map(protection::read_write);
    const auto outdated = map(protection::read), reader = map(protection::read);
    change(*writer, 5);
    change(*writer, 6);
    EXPECT_EQ(writer->release(), 2);
    EXPECT_EQ(writer->close(), 0);
    EXPECT_EQ(reader->acquire(), 2);
    EXPECT_EQ(reader->traffic().pages_from_neighbours, file_pages) << "two came from the file";
    EXPECT_TRUE(all_of(*reader) == content_);
    EXPECT_EQ(outdated->acquire(), 2);
    EXPECT_EQ(outdated->traffic().pages_from_neighbours, file_pages + 2) << "from the reader";
    EXPECT_TRUE(all_of(*outdated) == content_);
}

TEST_F(region_neighbours, changes_that_are_not_in_the_file_yet_are_brought_there_first) {
    const auto writer = map(protection::read_write), reader = map(protection::read);
    change(*writer, 5);
    env_.set({.calls = fault::call_write, .nth = 1, .for_ever = true, .error = -ENOSPC});
    EXPECT_EQ(writer->release(), -ENOSPC);
    EXPECT_EQ(reader->acquire(), -ENOSPC);
    bytes before = content_;
    before[5 * page_bytes + 17] = pattern_byte(7, 5 * page_bytes + 17);
    EXPECT_TRUE(all_of(*reader) == before);
    env_.clear();
    EXPECT_EQ(reader->acquire(), 1);
    EXPECT_EQ(reader->traffic().pages_from_neighbours, file_pages + 1);
    EXPECT_TRUE(all_of(*reader) == content_);
    EXPECT_TRUE(read_file(path_) == content_);
}

TEST_F(region_neighbours, what_programs_of_a_mount_write_comes_from_the_file) {
    const auto first = map(protection::read_write), second = map(protection::read);
    {
        program_write access(file_of(key_), program_access::kind::direct, 4 * page_bytes, 3);
        ASSERT_EQ(::pwrite(fd_, bytes(3, 77).data(), 3, 4 * page_bytes), 3);
        std::fill_n(content_.begin() + 4 * page_bytes, 3, 77);
        // It has not told so yet, and the region that comes now sees it.
        const auto third = map(protection::read);
        EXPECT_EQ(third->traffic().pages_from_neighbours, 0u);
        EXPECT_TRUE(all_of(*third) == content_);
        access.wrote(4 * page_bytes, 3);
    }
    EXPECT_EQ(second->acquire(), 1);
    EXPECT_EQ(second->traffic().pages_from_neighbours, file_pages);
    EXPECT_TRUE(all_of(*second) == content_);
    EXPECT_EQ(first->acquire(), 1);
    EXPECT_EQ(first->traffic().pages_from_neighbours, 1u);
    EXPECT_TRUE(all_of(*first) == content_);
}

// Another program may write, so the file's times decide.
TEST_F(region_neighbours, a_file_that_others_may_have_changed_is_read_itself) {
    ::close(fd_);
    fd_ = ::open(path_.c_str(), O_RDONLY);
    const auto first = map(protection::read_write, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // times are of some use by then
    EXPECT_GE(first->acquire(), 0);
    auto second = map(protection::read_write, {});
    EXPECT_EQ(second->traffic().pages_from_neighbours, file_pages);
    second.reset();
    patch_file(path_, 50, bytes(3, 200));
    std::fill_n(content_.begin() + 50, 3, 200);
    second = map(protection::read_write, {});
    EXPECT_EQ(second->traffic().pages_from_neighbours, 0u);
    EXPECT_TRUE(all_of(*second) == content_);
}

TEST_F(region_neighbours, a_region_that_expects_other_writers_believes_no_region_that_does_not) {
    const auto trusting = map(protection::read_write);
    change_unheard();
    EXPECT_EQ(trusting->acquire(), 0) << "the file's new times are known, and nothing was fetched";
    ::close(fd_);
    fd_ = ::open(path_.c_str(), O_RDONLY);
    let_files_settle();
    EXPECT_EQ(trusting->acquire(), 0);
    const auto careful = map(protection::read, {});
    EXPECT_EQ(careful->traffic().pages_from_neighbours, 0u);
    EXPECT_TRUE(all_of(*careful) == pattern(8, file_bytes));
}

TEST_F(region_neighbours, parts_of_a_file_and_the_page_in_which_one_ends) {
    const std::uint64_t from = 100 * page_bytes, end = 300 * page_bytes + 5;
    const auto part = map(protection::read_write, by_page, from, end - from);
    poke(*part, backend::cpu, end - from, bytes(9, 9));  // behind its end
    poke(*part, backend::cpu, end - from - 1, {9});
    content_[end - 1] = 9;
    EXPECT_EQ(part->release(), 1);
    const auto all = map(protection::read_write);
    EXPECT_EQ(all->traffic().pages_from_neighbours, 200u);
    EXPECT_TRUE(all_of(*all) == content_);
    const auto late = map(protection::read, by_page, 299 * page_bytes, 10 * page_bytes);
    EXPECT_EQ(late->traffic().pages_from_neighbours, 10u) << "from two regions";
    EXPECT_TRUE(all_of(*late) ==
                bytes(content_.begin() + 299 * page_bytes, content_.begin() + 309 * page_bytes));
}

TEST_F(region_neighbours, holes_of_the_file_need_no_copy) {
    std::filesystem::resize_file(path_, 0);
    std::filesystem::resize_file(path_, file_bytes);
    std::fill(content_.begin(), content_.end(), std::uint8_t{0});
    patch_file(path_, 10 * page_bytes, bytes(page_bytes, 5));
    std::fill_n(content_.begin() + 10 * page_bytes, page_bytes, 5);
    const auto first = map(protection::read_write), second = map(protection::read_write);
    EXPECT_LT(second->traffic().pages_from_neighbours, file_pages / 2);
    EXPECT_GT(second->traffic().pages_from_neighbours, 0u);
    EXPECT_TRUE(all_of(*second) == content_);
}

// ---- a memory that fails, or is slow

namespace {

// Ordinary memory; what it copies from another region fails, or waits.
class odd_memory final : public region::region_memory {
public:
    explicit odd_memory(bool writable) {
        status why;
        real_ = region::make_cpu_memory({file_pages, writable, 0}, why);
    }
    [[nodiscard]] std::byte* data() const override { return real_->data(); }
    [[nodiscard]] std::uint64_t bytes_on_device() const override { return 0; }
    [[nodiscard]] unsigned workers() const override { return real_->workers(); }
    [[nodiscard]] std::byte* staging(unsigned worker) const override {
        return real_->staging(worker);
    }
    [[nodiscard]] std::byte* marks(unsigned worker) const override { return real_->marks(worker); }
    int begin(void* stream) override { return real_->begin(stream); }
    int wait(unsigned worker) override { return real_->wait(worker); }
    int fill(unsigned worker, const std::byte* from,
             const std::vector<region::staged_page>& pages) override {
        if (from == staging(worker)) return real_->fill(worker, from, pages);
        ++copies;
        if (meanwhile) meanwhile();
        if (pages.front().number >= fails_from) return -EIO;
        return real_->fill(worker, from, pages);
    }
    int fill_from_cache(unsigned worker, const host::lent_file& from,
                        std::vector<region::staged_page>& pages) override {
        return real_->fill_from_cache(worker, from, pages);
    }
    int collect(unsigned worker, const std::vector<std::uint64_t>& numbers) override {
        return real_->collect(worker, numbers);
    }
    int adopt(unsigned worker, const std::vector<std::uint64_t>& numbers,
              std::uint64_t count) override {
        return real_->adopt(worker, numbers, count);
    }
    int read_back(unsigned worker, const std::vector<region::staged_run>& runs) override {
        return real_->read_back(worker, runs);
    }
    [[nodiscard]] const std::byte* settled() const override { return real_->settled(); }
    host::device_link show_to(const region_memory& reader) override {
        if (hides) return {host::link_kind::none, "it hides"};
        return real_->show_to(reader);
    }
    std::int64_t prefer(std::uint64_t begin, std::uint64_t end, void* stream) override {
        return real_->prefer(begin, end, stream);
    }
    void used(const std::vector<std::uint64_t>& numbers) override { real_->used(numbers); }
    std::int64_t promote(void* stream) override { return real_->promote(stream); }
    int changed_pages(void* stream, std::uint64_t first, std::uint64_t end,
                      std::vector<std::uint64_t>& out) override {
        return real_->changed_pages(stream, first, end, out);
    }
    [[nodiscard]] status lost() const override { return loss; }

    std::atomic<int> copies{0};
    std::uint64_t fails_from = UINT64_MAX;  // copies of a page of this number and behind fail
    bool hides = false;
    status loss;
    std::function<void()> meanwhile;

private:
    std::unique_ptr<region_memory> real_;
};

class odd_neighbours : public region_neighbours {
protected:
    odd_neighbours() {
        EXPECT_EQ(files_.open_home(env_, make_file(), false, home_), 0);
        for (int i = 0; i < 2; ++i) {
            memory_[i] = std::make_unique<odd_memory>(true);
            EXPECT_EQ(home_->join({memory_[i].get(), {0, file_pages}, file_bytes, false}, at_[i]),
                      0);
        }
    }
    ~odd_neighbours() override {
        for (int i = 0; i < 2; ++i)
            if (memory_[i] != nullptr) home_->leave(at_[i]);
    }
    std::string make_file() {
        write_file(path_, content_);
        return path_;
    }
    region::fetched_pages bring(int which) {
        const region::page_range all{0, file_pages};
        EXPECT_EQ(home_->acquire(at_[which], all), 0);
        return home_->fetch(at_[which], all, nullptr);
    }
    [[nodiscard]] bool is_right(int which) const {
        return std::memcmp(memory_[which]->data(), content_.data(), file_bytes) == 0;
    }

    region::shared_files& files_ = region::shared_files::of(host::hub::of_process());
    std::shared_ptr<region::shared_home> home_;
    std::unique_ptr<odd_memory> memory_[2];
    consistency::place at_[2]{};
};

}  // namespace

TEST_F(odd_neighbours, a_copy_that_fails_leaves_the_pages_to_the_file) {
    EXPECT_EQ(home_->meet(at_[0]), "");
    EXPECT_EQ(bring(0).from_neighbours, 0u);
    for (const std::uint64_t first_failure : {file_pages / 2, std::uint64_t{0}}) {
        memory_[1]->fails_from = first_failure;
        const region::fetched_pages came = bring(1);
        EXPECT_EQ(came.code, 0);
        EXPECT_EQ(came.pages, file_pages);
        EXPECT_EQ(came.from_neighbours, 0u);
        EXPECT_EQ(came.neighbour_code, -EIO);
        EXPECT_GT(memory_[1]->copies, 0);
        EXPECT_TRUE(is_right(1));
        home_->leave(at_[1]);
        memory_[1] = std::make_unique<odd_memory>(true);
        EXPECT_EQ(home_->join({memory_[1].get(), {0, file_pages}, file_bytes, false}, at_[1]), 0);
        EXPECT_EQ(home_->meet(at_[1]), "");
    }
    EXPECT_EQ(bring(1).from_neighbours, file_pages);
    EXPECT_TRUE(is_right(1));
}

TEST_F(odd_neighbours, if_copy_and_read_fail_all_is_as_before_and_the_next_brings_it) {
    EXPECT_EQ(home_->meet(at_[0]), "");
    EXPECT_EQ(bring(0).code, 0);
    memory_[1]->fails_from = file_pages / 2;
    env_.set({.calls = fault::call_read, .nth = 1, .for_ever = true, .error = -ENODATA});
    EXPECT_EQ(bring(1).code, -ENODATA);
    env_.clear();
    memory_[1]->fails_from = UINT64_MAX;
    const region::fetched_pages came = bring(1);
    EXPECT_EQ(came.code, 0);
    EXPECT_EQ(came.from_neighbours, file_pages);
    EXPECT_TRUE(is_right(1));
}

TEST_F(odd_neighbours, a_memory_out_of_reach_is_left_alone) {
    memory_[0]->hides = true;
    EXPECT_EQ(home_->meet(at_[1]), "it hides");
    EXPECT_EQ(bring(0).code, 0);
    const region::fetched_pages came = bring(1);
    EXPECT_EQ(came.from_neighbours, 0u);
    EXPECT_EQ(came.neighbour_code, 0);
    EXPECT_EQ(memory_[1]->copies, 0);
    EXPECT_TRUE(is_right(1));
}

TEST_F(odd_neighbours, a_device_that_is_lost_is_no_source) {
    EXPECT_EQ(home_->meet(at_[1]), "");
    EXPECT_EQ(bring(0).code, 0);
    memory_[0]->loss = {-EIO, "lost"};
    const region::fetched_pages came = bring(1);
    EXPECT_EQ(came.code, 0);
    EXPECT_EQ(came.from_neighbours, 0u);
    EXPECT_EQ(came.neighbour_code, -EIO);
    EXPECT_TRUE(is_right(1));
}

// A region that ends while another copies from it waits for the end of that: its memory goes then.
TEST_F(odd_neighbours, a_region_that_is_copied_from_does_not_end) {
    EXPECT_EQ(home_->meet(at_[0]), "");
    EXPECT_EQ(bring(0).code, 0);
    std::atomic<bool> leaving{false}, left{false}, was_left{false};
    std::thread leaver;
    std::once_flag once;
    memory_[1]->meanwhile = [&] {
        std::call_once(once, [&] {
            leaver = std::thread([&] {
                leaving = true;
                home_->leave(at_[0]);
                left = true;
                memory_[0].reset();
            });
            while (!leaving) std::this_thread::yield();
            for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        });
        was_left = was_left || left;
    };
    EXPECT_EQ(bring(1).from_neighbours, file_pages);
    EXPECT_FALSE(was_left);
    leaver.join();
    EXPECT_TRUE(left);
    EXPECT_TRUE(is_right(1));
}

}  // namespace penstock::test::region_neighbours
