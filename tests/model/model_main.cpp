// penstock_model_test: the model test as a program of its own, so that any seed can be run for as
// long as one likes.
#include "model/model_main.hpp"
#include "model/model_run.hpp"

int main(int count, char** words) {
    return penstock::model::run_program<penstock::model::model_run>("model", 50000, count, words);
}
