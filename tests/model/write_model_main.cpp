// penstock_write_model: the model test of writes as a program, so that any seed can be run for as
// long as one likes.
#include "model/model_main.hpp"
#include "model/write_run.hpp"

int main(int count, char** words) {
    return penstock::model::run_program<penstock::model::write_run>("write model", 150000, count,
                                                                    words);
}
