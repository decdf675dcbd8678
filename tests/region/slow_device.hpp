// A device that lends pages when the test says so, on a clock of the test's, with the desks of a
// GPU (device/loan.hpp).
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "device/loan.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::test {

// A device that begins loans when the test says so, on a clock of the test's.
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

}  // namespace penstock::test
