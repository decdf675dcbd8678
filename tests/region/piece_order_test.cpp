// What pieces wait for before their memory, or their place in host memory, gets other bytes: work
// of streams that may use them, and copies that are under way. A device stands for one that tells
// in which order it was asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "fault/faulty_environment.hpp"
#include "os/file_kind.hpp"
#include "region/piece_set.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

using region::piece_memory;
using region::piece_shape;
using region::placed_piece;
using region::stream_mark;
using steps = std::vector<std::string>;

constexpr std::uint64_t small_piece_bytes = 2 << 20, small_piece_count = 5,
                        small_file_bytes = small_piece_count * small_piece_bytes;

// Marks have names: "fill" or "use", and a number that grows.
class telling_memory final : public piece_memory {
public:
    telling_memory(steps& told, std::uint32_t slots) : told_(told), slots_(slots) {}
    [[nodiscard]] std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    [[nodiscard]] std::uint32_t slots() const override { return slots_; }
    [[nodiscard]] unsigned workers() const override { return 1; }
    [[nodiscard]] bool reads_in_place() const override { return true; }
    int place(const std::vector<placed_piece>& fresh) override { return tell("place ", fresh); }
    int remove(const std::vector<placed_piece>& gone) override { return tell("remove ", gone); }
    int begin_fill(std::uint64_t piece) override { return tell("begin " + std::to_string(piece)); }
    int end_fill(std::uint64_t) override { return 0; }
    std::byte* buffer(unsigned, unsigned, std::uint64_t offset) override { return &bytes_[offset]; }
    int send(unsigned, unsigned, std::uint64_t, std::uint64_t) override { return 0; }
    int clear(unsigned, std::uint64_t, std::uint64_t) override { return 0; }
    int to_host(std::uint64_t piece, std::uint64_t place) override {
        return tell("to host " + std::to_string(piece) + " " + std::to_string(place));
    }
    int from_host(unsigned, std::uint64_t piece, std::uint64_t place) override {
        return tell("from host " + std::to_string(piece) + " " + std::to_string(place));
    }
    int mark_workers(stream_mark& out) override { return mark("fill ", out); }
    int mark(void*, stream_mark& out) override { return mark("use ", out); }
    int wait(const stream_mark& until) override {
        return until == nullptr ? 0 : tell("wait " + name_of(until));
    }
    [[nodiscard]] bool has_passed(const stream_mark&) const override { return false; }
    int order(void*, const stream_mark& behind) override {
        return tell("order " + name_of(behind));
    }
    int check(void*) override { return 0; }

private:
    int tell(std::string step) {
        told_.push_back(std::move(step));
        return 0;
    }
    int tell(const char* verb, const std::vector<placed_piece>& some) {
        for (const placed_piece& p : some) tell(verb + std::to_string(p.number));
        return 0;
    }
    int mark(const char* what, stream_mark& out) {
        out = std::make_shared<std::string>(what + std::to_string(++marks_));
        return 0;
    }
    static std::string name_of(const stream_mark& mark) {
        return *std::static_pointer_cast<std::string>(mark);
    }

    steps& told_;
    const std::uint32_t slots_;
    std::vector<std::byte> bytes_ = std::vector<std::byte>(small_file_bytes);
    int marks_ = 0;
};

class piece_order : public testing::Test {
protected:
    void make(std::uint32_t slots, std::uint64_t host_places) {
        write_file(path_, bytes_);
        let_files_settle();
        host::file_facts facts;
        const int fd = host::open_regular(env_, path_, facts);
        ASSERT_GE(fd, 0);
        set_ = std::make_unique<region::piece_set>(env_, host::hub::of_process(), fd, facts,
                                                   std::make_unique<telling_memory>(told_, slots),
                                                   piece_shape{.pieces = small_piece_count,
                                                               .piece_bytes = small_piece_bytes,
                                                               .host_places = host_places},
                                                   path_, [](const std::string&) {});
    }
    void TearDown() override { set_.reset(); }
    // What the device was asked for meanwhile.
    steps expect_piece(std::uint64_t number) {
        told_.clear();
        EXPECT_GE(set_->expect({{range_of(number)}}, nullptr), 0);
        return told_;
    }
    steps use_piece(std::uint64_t number) {
        const steps out = expect_piece(number);
        EXPECT_EQ(set_->done({{range_of(number)}}, nullptr), 0);
        return out;
    }
    static byte_range range_of(std::uint64_t number) {
        return {number * small_piece_bytes, small_piece_bytes};
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    const std::vector<std::uint8_t> bytes_ = pattern(3, small_file_bytes);
    fault::faulty_environment env_;
    steps told_;
    std::unique_ptr<region::piece_set> set_;
};

}  // namespace

TEST_F(piece_order, kernels_come_after_the_fill_of_each_use) {
    make(2, 0);
    EXPECT_EQ(use_piece(0), (steps{"place 0", "begin 0", "order fill 1"}));
    EXPECT_EQ(use_piece(0), (steps{"order fill 1"})) << "also where it is here";
}

TEST_F(piece_order, a_piece_leaves_when_it_is_filled_and_its_uses_have_ended) {
    make(1, 0);
    use_piece(0);
    use_piece(0);
    EXPECT_EQ(use_piece(1), (steps{"wait fill 1", "wait use 2", "wait use 3", "remove 0", "place 1",
                                   "begin 1", "order fill 4"}));
}

TEST_F(piece_order, an_outdated_piece_is_filled_when_its_uses_have_ended) {
    make(2, 0);
    use_piece(0);
    patch_file(path_, 0, {1, 2, 3});
    let_files_settle();
    EXPECT_EQ(use_piece(0), (steps{"wait fill 1", "wait use 2", "begin 0", "order fill 3"}));
}

// Piece 0 came back from its place and is on the device, so that place is wanted least.
TEST_F(piece_order, a_place_in_host_memory_is_reused_when_the_copy_from_it_is_through) {
    make(2, 2);
    for (const std::uint64_t number : {0, 1, 2}) use_piece(number);  // fills 1, 3, 5
    EXPECT_EQ(use_piece(0), (steps{"wait fill 3", "wait use 4", "to host 1 1", "remove 1",
                                   "place 0", "begin 0", "from host 0 0", "order fill 7"}));
    EXPECT_EQ(use_piece(3), (steps{"wait fill 5", "wait use 6", "wait fill 7", "to host 2 0",
                                   "remove 2", "place 3", "begin 3", "order fill 9"}));
}

}  // namespace penstock::test
