"""Values of names that may not differ: strengths, sides, numerals, Greek letters, opposites."""

import pytest

from coder_jax.mapping.contradictions import contradiction, sides_in_words

SAME = [
    # strengths, in whatever unit and writing
    ("levothyroxine 25 mcg tablet", "Levothyroxine Sodium 0.025 MG Oral Tablet"),
    ("levothyroxine 25 micrograms", "Levothyroxine 0.025 MG"),
    ("levothyroxine 0,025 mg tab", "Levothyroxine 0.025 MG"),
    ("aspirin 500 mg", "Aspirin 0.5 g"),
    ("metformin 1,000 mg", "Metformin 1 g"),
    ("metformin 1.000 mg", "Metformin 1000 MG"),
    ("metformin 1 000 mg", "Metformin 1000 MG"),
    ("heparin 1.250.000 IE", "Heparin 1250000 UNT"),
    ("penicillin 1 Mio. IE", "Penicillin 1000000 UNT"),
    ("morphine 5-10 mg", "Morphine 10 MG"),
    ("morphine 10mg-20mg", "Morphine 20 MG"),
    ("digoxin .5 mg", "Digoxin 0.5 MG"),
    ("hydrocodone/apap 5/325", "Hydrocodone 5 MG / Acetaminophen 325 MG"),
    ("hydrocodone 5 mg/325 mg", "Acetaminophen 325 MG / Hydrocodone 5 MG"),
    ("amoxicillin 250 mg/5 ml", "Amoxicillin 50 MG/ML"),
    ("amoxicillin 250 mg per 5 ml", "Amoxicillin 50 MG/ML"),
    ("salbutamol 90 mcg/puff", "Albuterol 0.09 MG/ACTUAT"),
    ("mcg/L", "microgram per liter"),
    ("NaCl 0.9%", "Sodium chloride 9 MG/ML"),
    ("paracetamol 120 mg", "Paracetamol 120 MG in 5 ML"),
    ("amoxicillin 250 mg/5 ml 100 ml", "Amoxicillin 250 MG in 5 ML"),
    ("lidocaine 10 mg/ml 5 ml 50 mg", "Lidocaine 10 MG/ML"),
    ("ondansetron 4 mg", "2 ML ondansetron 2 MG/ML Injection"),
    ("insulin 100 units", "Insulin 100 UNT/ML"),
    ("hydrocortisone 1% cream", "Hydrocortisone 0.01 MG/MG"),
    ("hydrocortisone 10 mg/g", "Hydrocortisone 1 %"),
    ("retinopathy", "Diabetes without coma with retinopathy"),
    ("hepatitis", "Hepatitis B without hepatitis D"),
    ("SEM murmur", "Murmur"),
    ("isotretinoin OD", "Isotretinoin, left alone"),
    ("18 gauge OD", "18 gauge, left"),
    ("chorioretinitis OS", "Chorioretinitis of left eye"),
    ("cough without fever", "Cough"),
    ("cataract OS", "Cataract of left eye"),
    ("cataract R and L", "Bilateral cataract"),
    ("OD of paracetamol", "Overdose, left alone"),
    ("insulin 100 IU/ml", "Insulin 100 UNT/ML"),
    # what only looks like a strength, a side or a numeral
    ("COVID-19", "COVID-19 infection"),
    ("MCV4 vaccine", "MCV4"),
    ("C. difficile colitis", "Colitis due to Clostridium difficile"),
    ("ceftriaxone IV", "Ceftriaxone"),
    ("oxygen 2 L/min", "Oxygen 2 liters per minute"),
    ("fragile X", "Fragile X syndrome"),
    ("L-dopa, (R)-warfarin", "Levodopa and right heart failure"),
    ("B-cell lymphoma", "Lymphoma, B cell"),
    ("anaemia secondary to CKD", "Primary anaemia"),
    ("unspecified asthma", "Asthma, not otherwise specified"),
    # numerals, Roman and Arabic
    ("type II diabetes", "Diabetes mellitus type 2"),
    ("diabetes mellitus 2", "Diabetes mellitus, type II"),
    ("stage iv carcinoma", "Carcinoma, stage 4"),
    ("Grad III", "grade 3"),
    ("1st degree burn", "First degree burn"),
    ("vitamin B 12", "Vitamin B12"),
    ("22q11 deletion", "22q11.2 deletion"),
    # sides, Greek letters
    ("fracture hand (R)", "Fracture of right hand"),
    ("lt knee", "Left knee"),
    ("Knie links", "Left knee"),
    ("genou gauche", "Left knee"),
    ("rodilla derecha", "Right knee"),
    ("dilated right ventricle, left atrium normal", "Right ventricle dilated"),
    ("X-linked ataxia", "Ataxia of the right hand"),
    ("left and right hip", "Bilateral hips"),
    ("left renal agenesis", "Unilateral renal agenesis"),
    ("ß-thalassaemia", "beta-Thalassemia"),
    ("β-thalassaemia", "Beta thalassemia"),
    ("b-thalassaemia", "β thalassemia"),
    ("injury w/o loss of consciousness", "Injury without loss of consciousness"),
]


@pytest.mark.parametrize(("mention", "term"), SAME)
def test_what_goes_together(mention, term):
    assert contradiction(mention, term).differs == ()
    assert contradiction(term, mention).differs == ()


DIFFERENT = [
    ("levothyroxine 25 mcg tablet", "Levothyroxine 0.25 MG Tablet", "strength"),
    ("levothyroxine 0,025 mg", "Levothyroxine 0.05 MG", "strength"),
    ("NaCl 0.9%", "Sodium chloride 4.5 MG/ML", "strength"),
    ("paracetamol 650 mg", "Paracetamol 250 MG in 5 ML", "strength"),
    ("fentanyl 25 mcg", "Fentanyl 0.05 MG/HR", "strength"),
    ("hydrocortisone 1% cream", "Hydrocortisone 0.025 MG/MG", "strength"),
    ("tos sin fiebre", "Fiebre", "negation"),
    ("chorioretinitis OS", "Chorioretinitis of right eye", "side"),
    ("cough w/o fever", "Fever", "negation"),
    ("Migräne ohne Aura", "Aura", "negation"),
    ("cataract OD", "Cataract of left eye", "side"),
    ("cataract L/R", "Cataract of left eye", "side"),
    ("RLL pneumonia", "Left lower lobe pneumonia", "side"),
    ("RV failure", "Left ventricular failure", "side"),
    ("aspirin 500 mcg", "Aspirin 0.5 g", "strength"),
    ("metformin 1.000 mg", "Metformin 1 MG", "strength"),
    ("morphine 5-10 mg", "Morphine 20 MG", "strength"),
    ("hydrocodone/apap 5/325", "Hydrocodone 10 MG / Acetaminophen 325 MG", "strength"),
    ("amoxicillin 250 mg/5 ml", "Amoxicillin 25 MG/ML", "strength"),
    ("lidocaine 1%", "Lidocaine 2 %", "strength"),
    ("heparin 5.000 IE", "Heparin 500 UNT", "strength"),
    ("ug/L", "milligram per liter", "unit"),
    ("24 h urine", "12 hour urine", "time"),
    ("5 mm nodule", "Nodule of 5 cm", "length"),
    ("diabetes type II", "Diabetes mellitus type 1", "type"),
    ("Mucopolysaccharidosis IIIA", "Mucopolysaccharidosis type IIIB", "number"),
    ("stage IV carcinoma", "Carcinoma stage III", "stage"),
    ("grade 3 hemorrhage", "Hemorrhage grade II", "grade"),
    ("T2DM", "Type 1 diabetes mellitus", "type"),
    ("trisomy 21", "Trisomy 18", "number"),
    ("vitamin B12", "Vitamin B6", "letter"),
    ("hepatitis B", "Hepatitis C", "letter"),
    ("IL-6", "Interleukin (IL 8)", "number"),
    ("7q deletion", "7p deletion", "chromosome"),
    ("IgA nephropathy", "IgG nephropathy", "immunoglobulin"),
    ("MCV4", "MCV13", "number"),
    ("THR right", "Left total hip replacement", "side"),
    ("fracture hand (R)", "Fracture of left hand", "side"),
    ("R leg numbness", "left leg numbness", "side"),
    ("(R)-sided pain", "Left-sided pain", "side"),
    ("L-sided pain", "Right-sided pain", "side"),
    ("Hüft-TEP re.", "left hip replacement", "side"),
    ("left hydronephrosis", "Bilateral hydronephrosis", "side"),
    ("left to right shunt", "Right-to-left shunt", "side"),
    ("ß-thalassaemia", "alpha-Thalassemia", "Greek letter"),
    ("acute pancreatitis", "Chronic pancreatitis", "acute/chronic"),
    ("akute Pankreatitis", "Chronic pancreatitis", "acute/chronic"),
    ("hyperkalaemia", "Hypokalemia", "hypo/hyper"),
    ("diabetes without coma", "Diabetes with coma", "with/without"),
    ("stable angina", "Unstable angina", "negation"),
    ("small cell cancer", "Non-small cell cancer", "negation"),
    ("LUQ pain", "Left lower quadrant pain", "upper/lower"),
    ("PCV13", "PCV 20", "number"),
    ("Hodgkin lymphoma", "Non-Hodgkin lymphoma", "negation"),
    ("primary hypertension", "Secondary hypertension", "primary/secondary"),
    ("open fracture", "Closed fracture", "open/closed"),
    ("male infertility", "Female infertility", "male/female"),
]


@pytest.mark.parametrize(("mention", "term", "kind"), DIFFERENT)
def test_what_contradicts(mention, term, kind):
    assert kind in contradiction(mention, term).differs
    assert contradiction(term, mention).differs


@pytest.mark.parametrize(
    ("mention", "term", "lost"),
    [
        ("THR right", "Total hip replacement", ("side",)),
        ("levothyroxine 25 mcg", "Levothyroxine", ("strength",)),
        ("vitamin D 1000 IU", "Vitamin D 25 mcg", ("strength",)),  # which nobody can compare
        # the strength of a solution leaves open how much of it there is
        ("ondansetron 4 mg", "2 ML Ondansetron 2 MG/ML", ()),
        ("ondansetron 7 mg", "2 ML Ondansetron 2 MG/ML", ("strength",)),
        ("lidocaine 10 mg/ml 5 ml 50 mg", "Lidocaine 10 MG/ML", ()),
        ("hydrocortisone 1%", "Hydrocortisone 10 MG/G", ()),
        ("enoxaparin 40 mg", "Enoxaparin 100 MG/ML", ("strength",)),
        ("paracetamol 24 mg/ml", "Paracetamol 1000 MG", ("strength",)),
        ("ceftriaxone 50 mg/kg", "Ceftriaxone 1000 MG", ("strength",)),
        ("type 2 diabetes", "Diabetes", ("type",)),
        ("acute appendicitis", "Appendicitis", ("acute/chronic",)),
        ("type 2 diabetes", "T2DM", ()),  # the number is there
        ("appendicitis", "Acute appendicitis", ()),  # said beyond the mention
        ("fracture finger 5 L", "Fracture of finger", ("number",)),  # litres or left: nobody knows
        ("L. pneumophila pneumonia", "Pneumonia", ()),
    ],
)
def test_what_is_lost(mention, term, lost):
    assert contradiction(mention, term) == ((), lost)


def test_a_concentration_in_nothing_is_no_error():
    assert not contradiction("insulin 5 mg/0 ml", "insulin 5 mg").differs
    assert not contradiction("creatinine umol/0 L", "creatinine umol/L").differs


def test_the_name_of_a_chemical_is_not_compared_by_its_numbers():
    one = "1,2,3,4,5-pentahydroxyhexane 6"
    assert contradiction(one, "2,3,4,5,6-pentahydroxyhexane 1").differs == ()


def test_signs_of_other_scripts_are_no_stumbling_block():
    strange = ["heparin 5 İU", "Tİp 2 diyabet", "٣ mg", "5 ㎎", "½ tablet", "Grad Ⅲ", "", "ß", "µ"]
    for one in strange:
        for other in strange:
            contradiction(one, other)
    assert contradiction("5 ㎎", "6 mg").differs == ("strength",)
    assert contradiction("Grad Ⅲ", "grade 2").differs == ("grade",)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("fracture hand (R)", "fracture hand right"),
        ("R leg numbness", "right leg numbness"),
        ("lt. knee", "left knee"),
        ("RT KNEE", "right KNEE"),
        ("L-sided pain", "left-sided pain"),
        ("visual acuity O.D.", "visual acuity right"),
        ("OS pain", "OS pain"),
        ("cataract R and L", "cataract bilateral"),
        ("R/L shunt", "R/L shunt"),
        ("tretinoin OD", "tretinoin OD"),
        ("L5 radiculopathy", "L5 radiculopathy"),
        ("oxygen 2 L/min", "oxygen 2 L/min"),
        ("L-dopa", "L-dopa"),
        ("RT-PCR", "RT-PCR"),
        ("RT PCR", "RT PCR"),
        ("s/p RT", "s/p RT"),
        ("XR L spine", "XR L spine"),
        ("L thyroxine 50 mcg", "L thyroxine 50 mcg"),
        ("C. difficile", "C. difficile"),
    ],
)
def test_sides_in_words(name, written):
    assert sides_in_words(name) == written
