// A small world around the buffer's core: frames that hold values, a disk, and what every page
// should hold. The core's actions are carried out on it one after the other, so an action that is
// missing, wrong or out of order shows in the bytes.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "buffer/core/check.hpp"
#include "buffer/core/movement.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/types.hpp"

namespace penstock::buffer::test {

// A value stands for the bytes of a block. From this one on no other block has the same bytes, and
// the core is told that they are alone.
inline constexpr std::uint64_t first_alone = 1'000'000;

using values = std::vector<std::uint64_t>;

template <typename Core>
class world {
public:
    explicit world(const limits& most)
        : most_(most), host_(most.host_frames()), device_(most.device_frames()) {
        EXPECT_EQ(core.make(most), 0);
    }

    // What a page of the disk holds at first.
    void put_on_disk(page_id id, values stored) {
        now_[key(id)] = disk_[key(id)] = std::move(stored);
    }

    // "host", "device", "nowhere" or "busy", then what was told: "demote h0 d1", "drop 7" and so
    // on, with commas.
    std::string read(page_id id) {
        begin(now_.at(key(id)));
        found at;
        int result = core.touch(id, sink(), at);
        if (result == 0 && at == found::nowhere) {
            EXPECT_EQ(disk_.at(key(id)), now_.at(key(id)))
                << "page " << id.page << " is loaded, but its last write was never written back";
            result = core.load(id, contents().data(), sink());
        }
        return ended(result, at);
    }
    std::string write(page_id id, values written) {
        begin(written);
        found at = found::nowhere;
        const int result = core.replace(id, contents().data(), sink(), at);
        if (result == 0) now_[key(id)] = std::move(written);
        return ended(result, at);
    }
    std::string flush(std::uint32_t file) {
        begin({});
        return ended(core.flush(file, sink()), found::nowhere);
    }
    // What was written to the page and not written back is lost; that is what forgetting means.
    std::string forget(page_id id) {
        begin({});
        const int result = core.forget(id, sink());
        if (result == 0) now_[key(id)] = disk_.at(key(id));
        return ended(result, found::nowhere);
    }

    // Every page in the table has its bytes, every other has them on the disk, and the core's own
    // counts agree.
    std::string wrong() const {
        if (const char* const broken = check(core.inside()); broken != nullptr) return broken;
        for (const auto& [name, wanted] : now_) {
            const page_id id{name.second, name.first};
            for (std::uint32_t i = 0; i < most_.blocks_per_page; ++i) {
                const block* const found_block = core.inside().block_of(id, i);
                const std::uint64_t has =
                    found_block == nullptr || found_block->where == side::absent
                        ? disk_.at(name)[i]
                        : (found_block->where == side::host ? host_ : device_)[found_block->frame];
                if (has != wanted[i])
                    return "page " + std::to_string(id.page) + " has other bytes in its block " +
                           std::to_string(i);
            }
        }
        return "";
    }

    Core core;
    counts moved;
    bool copies_only = false;  // a mistake on purpose: takes an exchange for a promotion

private:
    using name = std::pair<std::uint32_t, std::uint64_t>;
    static name key(page_id id) { return {id.file, id.page}; }

    void begin(const values& staged) {
        staged_ = staged;
        told_.clear();
    }
    std::string ended(int result, found at) const {
        if (result == -EBUSY) return "busy" + told_;
        EXPECT_EQ(result, 0);
        return (at == found::host ? "host" : at == found::device ? "device" : "nowhere") + told_;
    }
    std::vector<content_id> contents() const {
        std::vector<content_id> out;
        for (const std::uint64_t value : staged_)
            out.push_back(value >= first_alone ? content_id::alone() : content_id{value, 0});
        return out;
    }
    auto sink() {
        return [this](const action& command) {
            moved(command);
            carry_out(command);
        };
    }
    void tell(const char* verb, const std::string& operands) {
        told_ += std::string(told_.empty() ? ": " : ", ") + verb + operands;
    }

    void carry_out(const action& a) {
        const std::string host = a.host == nothing ? "" : " h" + std::to_string(a.host),
                          device = a.device == nothing ? "" : " d" + std::to_string(a.device);
        const std::string page = " " + std::to_string(a.page.page);
        switch (a.kind) {
            case move::fill: host_.at(a.host) = staged_.at(a.place); return tell("fill", host);
            case move::demote:
                device_.at(a.device) = host_.at(a.host);
                return tell("demote", host + device);
            case move::promote:
                host_.at(a.host) = device_.at(a.device);
                return tell("promote", device + host);
            case move::exchange:
                if (copies_only) host_.at(a.host) = device_.at(a.device);
                else std::swap(host_.at(a.host), device_.at(a.device));
                return tell("exchange", host + device);
            case move::write_back:
                disk_.at(key(a.page))[a.place] =
                    a.host != nothing ? host_.at(a.host) : device_.at(a.device);
                return tell("write", page + host + device);
            case move::drop: return tell("drop", page);
            case move::vanish: return tell("vanish", host + device);
        }
    }

    limits most_;
    values host_, device_, staged_;
    std::map<name, values> disk_, now_;
    std::string told_;
};

// Two files; a table that is never full unless it is given, as docs/guide/buffer.md has it for
// gram.
inline limits sizes(std::uint32_t host, std::uint32_t device, std::uint32_t blocks = 1,
                    std::uint32_t pages = 0, std::uint32_t absent = 0) {
    return {host, device, blocks, pages == 0 ? host + device + 1 : pages, 2, absent};
}

}  // namespace penstock::buffer::test
