// The room for tables of a device that refuses some of its memory.
#include "runtime/table_room.hpp"

#include <cerrno>
#include <set>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

// A device of which each allocation is numbered, from 1 on, and some are refused.
class sparing_device {
public:
    explicit sparing_device(std::set<int> refused) : refused_(std::move(refused)) {}

    void* allocate_device(std::uint64_t bytes) { return next(bytes); }
    void* allocate_shared(std::uint64_t bytes) { return next(bytes); }
    [[nodiscard]] std::string shortage() const { return "nothing is left"; }
    int upload(void* to, const void* from, std::uint64_t bytes) {
        std::memcpy(to, from, bytes);
        return 0;
    }
    [[nodiscard]] std::size_t pieces() const { return given_.size(); }

private:
    void* next(std::uint64_t bytes) {
        if (refused_.contains(++asked_)) return nullptr;
        given_.emplace_back(bytes);
        return given_.back().data();
    }

    const std::set<int> refused_;
    int asked_ = 0;
    std::vector<std::vector<std::uint8_t>> given_;
};

}  // namespace

TEST(table_room, is_had_once_memory_is_there_again_and_takes_each_piece_once) {
    // The runs; what they claim; the notes.
    for (const std::set<int>& refused :
         {std::set<int>{1}, {2}, {3}, {1, 2}, {2, 3}, {3, 4}, {1, 3}, {2, 4}}) {
        sparing_device device(refused);
        host::table_room room;
        host::table_room::share share;
        for (std::size_t i = 0; i < refused.size(); ++i) {
            const status s = room.take(device, 5, share);
            EXPECT_EQ(s.code, -ENOMEM);
            EXPECT_NE(s.message.find("nothing is left"), std::string::npos) << s.message;
        }
        const status s = room.take(device, 5, share);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_NE(share.run_words, nullptr);
        EXPECT_NE(share.claimed, nullptr);
        EXPECT_NE(share.words, nullptr);
        EXPECT_EQ(device.pieces(), 3u);
        room.give(share);
    }
}

}  // namespace penstock::test
